-- What is known of each message, wherever it lies.  $1 queue  $2 ids  $3 ranks
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT max_attempts FROM {schema}.queues WHERE name = $1),
i AS MATERIALIZED (SELECT * FROM unnest($2::uuid[], $3::smallint[]) AS i (id, rank)),
found AS (
    SELECT m.id, CASE WHEN m.visible_at <= t.now THEN 'pending' ELSE 'processing' END AS status, m.payload,
        m.content_type, m.headers, m.rank, m.attempts, m.max_attempts, m.enqueued_at,
        CASE WHEN m.visible_at > t.now THEN m.visible_at END AS visible_at, NULL::timestamptz AS finished_at,
        NULL::bytea AS result, m.error, m.worker, NULL::timestamptz AS claimed_at,
        m.expires{m_history}
    FROM {q} m JOIN i ON m.rank = i.rank AND m.id = i.id, t
    UNION ALL
    SELECT m.id, CASE WHEN m.visible_at <= t.now THEN 'pending' ELSE m.waits END, m.payload, m.content_type, m.headers,
        m.rank, m.attempts, m.max_attempts, m.enqueued_at, CASE WHEN m.visible_at > t.now THEN m.visible_at END, NULL,
        NULL, m.error, m.worker, NULL, m.expires{m_history}
    FROM {w} m JOIN i ON m.id = i.id, t
    UNION ALL
    SELECT m.id, 'dead', m.payload, m.content_type, m.headers, m.rank, m.attempts, m.max_attempts, m.enqueued_at, NULL,
        m.finished_at, NULL, m.error, m.worker, m.claimed_at, m.expires{m_history}
    FROM {d} m JOIN i ON m.rank = i.rank AND m.id = i.id
    UNION ALL
    SELECT m.id, m.status, m.payload, m.content_type, m.headers, m.rank, m.attempts, m.max_attempts, m.enqueued_at,
        NULL, m.finished_at, m.result, m.error, m.worker, m.claimed_at, m.expires{m_history}
    FROM {a} m JOIN i ON m.id = i.id
)
SELECT f.id, f.status, f.payload, f.content_type, f.headers, f.rank, f.attempts,
    coalesce(f.max_attempts, queue.max_attempts) AS most, date_part('epoch', f.enqueued_at) AS enqueued_at,
    date_part('epoch', f.visible_at) AS visible_at, date_part('epoch', f.finished_at) AS finished_at, f.result, f.error,
    f.worker, date_part('epoch', f.claimed_at) AS claimed_at, date_part('epoch', f.expires) AS expires, f.history
FROM found f, queue
