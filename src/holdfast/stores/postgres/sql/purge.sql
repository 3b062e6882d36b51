-- What waits goes; what is held, dead or archived stays.  $1 queue
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
ready AS (DELETE FROM {q} q USING t WHERE q.token IS NULL OR q.visible_at <= t.now RETURNING 1),
waiting AS (DELETE FROM {w} RETURNING waits),
n AS (
    SELECT (SELECT count(*) FROM ready) AS live,
        (SELECT count(*) FROM waiting WHERE waits = 'delayed') AS delayed,
        (SELECT count(*) FROM waiting WHERE waits = 'retry') AS retry
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, delayed, retry)
    SELECT queues.id, -n.live, -n.delayed, -n.retry FROM n, {schema}.queues WHERE queues.name = $1
)
SELECT live + delayed + retry AS gone FROM n
