-- One page of pending messages in id order: the first of each priority, so that a long queue is not sorted.
-- $1 queue  $2 after  $3 limit
WITH RECURSIVE t AS MATERIALIZED (SELECT {schema}.now() AS now, coalesce($2::uuid, '00000000-0000-0000-0000-000000000000') AS after),
ranks AS (
    (SELECT rank FROM {q} ORDER BY rank LIMIT 1)
    UNION ALL
    SELECT (SELECT m.rank FROM {q} m WHERE m.rank > ranks.rank ORDER BY m.rank LIMIT 1)
    FROM ranks WHERE ranks.rank IS NOT NULL
),
found AS (
    (SELECT m.id, 'pending' AS status, m.payload, m.content_type, m.headers, m.rank, m.attempts, m.max_attempts,
        m.enqueued_at,
        NULL::timestamptz AS visible_at, NULL::timestamptz AS finished_at, NULL::bytea AS result, m.error,
        m.worker, m.expires{m_history}
    FROM ranks, LATERAL (
        SELECT * FROM {q} q
        WHERE q.rank = ranks.rank AND q.id > (SELECT after FROM t) AND q.visible_at <= (SELECT now FROM t)
        ORDER BY q.rank, q.id LIMIT $3::bigint
    ) m
    ORDER BY m.id LIMIT $3::bigint)
    UNION ALL
    (SELECT m.id, 'pending', m.payload, m.content_type, m.headers, m.rank, m.attempts, m.max_attempts,
        m.enqueued_at, NULL,
        NULL, NULL, m.error, m.worker, m.expires{m_history}
    FROM {w} m, t
    WHERE m.visible_at <= t.now AND m.id > t.after ORDER BY m.id LIMIT $3::bigint)
    ORDER BY id LIMIT $3::bigint
)
SELECT f.id, f.status, f.payload, f.content_type, f.headers, f.rank, f.attempts,
    coalesce(f.max_attempts, queues.max_attempts) AS most, date_part('epoch', f.enqueued_at) AS enqueued_at,
    date_part('epoch', f.visible_at) AS visible_at, date_part('epoch', f.finished_at) AS finished_at, f.result, f.error,
    f.worker, NULL::float8 AS claimed_at, date_part('epoch', f.expires) AS expires, f.history
FROM found f, {schema}.queues
WHERE queues.name = $1
ORDER BY f.id
