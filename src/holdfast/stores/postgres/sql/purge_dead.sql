-- Dead letters that nobody holds go.  $1 queue
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
gone AS (DELETE FROM {d} d USING t WHERE d.token IS NULL OR d.visible_at <= t.now RETURNING 1),
counted AS (
    INSERT INTO {schema}.deltas (queue, dead)
    SELECT queues.id, -(SELECT count(*) FROM gone) FROM {schema}.queues WHERE queues.name = $1
)
SELECT count(*) AS gone FROM gone
