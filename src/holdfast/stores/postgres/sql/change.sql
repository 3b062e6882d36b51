-- A message that nobody holds is replaced under its id.
-- $1 queue  $2 id  $3 rank  $4 new rank  $5 delay  $6 instant  $7 payload  $8 its content type; NULL: as it is
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, max_attempts, no_retry FROM {schema}.queues WHERE name = $1),
ready AS (
    DELETE FROM {q} q USING t, queue
    WHERE q.rank = $3::smallint AND q.id = $2::uuid AND (q.token IS NULL OR (
        q.visible_at <= t.now AND q.attempts < coalesce(q.max_attempts, queue.max_attempts) AND NOT queue.no_retry))
    RETURNING q.*
),
waiting AS (DELETE FROM {w} w WHERE w.id = $2::uuid RETURNING w.*),
gone AS (
    SELECT id, enqueued_at, visible_at, attempts, max_attempts, rank, recovered OR token IS NOT NULL AS recovered, used,
        content_type, headers, error, worker, payload, 'live' AS was, expires{history}
    FROM ready
    UNION ALL
    SELECT id, enqueued_at, visible_at, attempts, max_attempts, rank, recovered, used, content_type, headers, error, worker,
        payload, waits, expires{history}
    FROM waiting
),
new AS MATERIALIZED (
    SELECT gone.id, enqueued_at, attempts, gone.max_attempts, coalesce($4::smallint, rank) AS rank, recovered, used,
        CASE WHEN $7::bytea IS NULL THEN content_type ELSE $8 END AS content_type, headers, error, worker,
        coalesce($7::bytea, payload) AS payload, was,
        coalesce(to_timestamp($6::float8), t.now + $5::float8 * interval '1 second', visible_at) AS due,
        CASE WHEN attempts = 0 THEN 'delayed' ELSE 'retry' END AS waits, expires{history}
    FROM gone, t
),
back AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, attempts, max_attempts, rank, recovered, used, content_type, headers,
        error, worker, payload, expires{history})
    SELECT id, enqueued_at, due, attempts, max_attempts, rank, recovered, used, content_type, headers, error, worker, payload, expires{history}
    FROM new, t WHERE due <= t.now
),
later AS (
    INSERT INTO {w} (id, enqueued_at, visible_at, attempts, max_attempts, rank, recovered, used, content_type, headers,
        error, worker, payload, waits, expires{history})
    SELECT id, enqueued_at, due, attempts, max_attempts, rank, recovered, used, content_type, headers, error, worker,
        payload, waits, expires{history}
    FROM new, t WHERE due > t.now
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, delayed, retry)
    SELECT queue.id, (due <= t.now)::int - (was = 'live')::int, (due > t.now AND waits = 'delayed')::int - (was = 'delayed')::int,
        (due > t.now AND waits = 'retry')::int - (was = 'retry')::int
    FROM new, queue, t
)
SELECT id FROM new
