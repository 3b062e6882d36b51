-- What is ready goes; what is held, dead or archived stays.  $1 queue
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
gone AS (DELETE FROM {q} q USING t WHERE q.token IS NULL OR q.visible_at <= t.now RETURNING 1),
counted AS (
    INSERT INTO {schema}.deltas (queue, live)
    SELECT queues.id, -(SELECT count(*) FROM gone) FROM {schema}.queues WHERE queues.name = $1
)
SELECT count(*) AS gone FROM gone
