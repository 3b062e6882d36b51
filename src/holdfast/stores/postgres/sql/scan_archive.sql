-- One page of settled messages in id order.  $1 queue  $2 after  $3 limit
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
found AS (
    SELECT m.id, m.status, m.payload, m.content_type, m.headers, m.rank, m.attempts, m.max_attempts,
        m.enqueued_at,
        NULL::timestamptz AS visible_at, m.finished_at, m.result, m.error, m.worker, m.claimed_at,
        m.expires{m_history}
    FROM {a} m
    WHERE $2::uuid IS NULL OR m.id > $2::uuid ORDER BY m.id LIMIT $3::bigint
)
SELECT f.id, f.status, f.payload, f.content_type, f.headers, f.rank, f.attempts,
    coalesce(f.max_attempts, queues.max_attempts) AS most, date_part('epoch', f.enqueued_at) AS enqueued_at,
    date_part('epoch', f.visible_at) AS visible_at, date_part('epoch', f.finished_at) AS finished_at, f.result, f.error,
    f.worker, date_part('epoch', f.claimed_at) AS claimed_at,
    date_part('epoch', f.expires) AS expires, f.history
FROM found f, {schema}.queues
WHERE queues.name = $1
ORDER BY f.id
