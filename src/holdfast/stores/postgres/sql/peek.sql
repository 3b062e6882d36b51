-- What the next claims would take, in their order.  $1 queue  $2 limit
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
usual AS MATERIALIZED (SELECT max_attempts, no_retry FROM {schema}.queues WHERE name = $1),
found AS (
    (SELECT m.id, m.payload, m.content_type, m.headers, m.rank, m.attempts, m.max_attempts, m.enqueued_at, m.error, m.worker,
        m.expires{m_history}
    FROM {q} m, usual
    WHERE m.visible_at <= (SELECT now FROM t)
        AND (m.token IS NULL OR (m.attempts < coalesce(m.max_attempts, usual.max_attempts) AND NOT usual.no_retry)) AND (m.expires IS NULL OR m.expires > (SELECT now FROM t))
    ORDER BY m.rank, m.id LIMIT $2::bigint)
    UNION ALL
    (SELECT m.id, m.payload, m.content_type, m.headers, m.rank, m.attempts, m.max_attempts, m.enqueued_at, m.error, m.worker,
        m.expires{m_history}
    FROM {w} m WHERE m.visible_at <= (SELECT now FROM t) AND (m.expires IS NULL OR m.expires > (SELECT now FROM t)) ORDER BY m.rank, m.id LIMIT $2::bigint)
    ORDER BY rank, id LIMIT $2::bigint
)
SELECT f.id, 'pending' AS status, f.payload, f.content_type, f.headers, f.rank, f.attempts,
    coalesce(f.max_attempts, usual.max_attempts) AS most, date_part('epoch', f.enqueued_at) AS enqueued_at,
    NULL::float8 AS visible_at, NULL::float8 AS finished_at, NULL::bytea AS result, f.error, f.worker,
    NULL::float8 AS claimed_at, date_part('epoch', f.expires) AS expires, f.history
FROM found f, usual
ORDER BY f.rank, f.id
