-- Delayed messages and retries go, before `purge_ready`: one that becomes ready meanwhile is found there.  $1 queue
WITH waiting AS (DELETE FROM {w} RETURNING waits),
n AS (
    SELECT count(*) FILTER (WHERE waits = 'delayed') AS delayed, count(*) FILTER (WHERE waits = 'retry') AS retry
    FROM waiting
),
counted AS (
    INSERT INTO {schema}.deltas (queue, delayed, retry)
    SELECT queues.id, -n.delayed, -n.retry FROM n, {schema}.queues WHERE queues.name = $1
)
SELECT delayed + retry AS gone FROM n
