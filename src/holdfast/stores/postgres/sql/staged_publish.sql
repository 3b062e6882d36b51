-- Staged messages become messages; how many.  $1 queue  $2 stages
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
sent AS (DELETE FROM {schema}.staged WHERE stage = ANY ($2::uuid[]) RETURNING *),
ready AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, rank, content_type, headers, payload)
    SELECT id, t.now, t.now, rank, content_type, headers, payload FROM sent, t WHERE due IS NULL OR due <= t.now
    RETURNING 1
),
waiting AS (
    INSERT INTO {w} (id, enqueued_at, visible_at, rank, content_type, headers, payload, waits)
    SELECT id, t.now, due, rank, content_type, headers, payload, 'delayed' FROM sent, t WHERE due > t.now
    RETURNING 1
)
INSERT INTO {schema}.deltas (queue, live, delayed)
SELECT queues.id, (SELECT count(*) FROM ready), (SELECT count(*) FROM waiting)
FROM {schema}.queues WHERE queues.name = $1
RETURNING live + delayed
