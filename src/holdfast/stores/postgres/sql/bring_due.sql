-- Waiting messages that are due become ready.  $1 queue  $2 limit
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id FROM {schema}.queues WHERE name = $1 AND NOT paused),
due AS (
    DELETE FROM {w} WHERE id = ANY (ARRAY(
        SELECT w.id FROM {w} w, queue
        WHERE w.visible_at <= (SELECT now FROM t)
        ORDER BY w.visible_at LIMIT $2::integer FOR UPDATE OF w SKIP LOCKED
    ))
    RETURNING *
),
moved AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, token, attempts, max_attempts, rank, recovered, used, content_type,
        headers, error, worker, payload, expires{history})
    SELECT id, enqueued_at, visible_at, NULL, attempts, max_attempts, rank, recovered, used, content_type, headers, error,
        worker, payload, expires{history}
    FROM due
)
INSERT INTO {schema}.deltas (queue, live, delayed, retry)
SELECT queue.id, d.moved, -d.delayed, d.delayed - d.moved
FROM queue, (SELECT count(*) AS moved, count(*) FILTER (WHERE waits = 'delayed') AS delayed FROM due) d
WHERE d.moved > 0
