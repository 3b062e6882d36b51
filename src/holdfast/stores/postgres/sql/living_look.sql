-- The state and rank of a message that has not ended; nobody claims, changes or ends it before we are done.
-- $1 queue  $2 id
WITH RECURSIVE t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT max_attempts, no_retry FROM {schema}.queues WHERE name = $1),
ranks AS (
    (SELECT rank FROM {q} ORDER BY rank LIMIT 1)
    UNION ALL
    SELECT (SELECT m.rank FROM {q} m WHERE m.rank > ranks.rank ORDER BY m.rank LIMIT 1)
    FROM ranks WHERE ranks.rank IS NOT NULL
),
live AS (
    SELECT m.rank, CASE
        WHEN m.visible_at > t.now AND m.token IS NOT NULL THEN 'processing'
        WHEN m.token IS NOT NULL AND (m.attempts >= coalesce(m.max_attempts, queue.max_attempts) OR queue.no_retry)
            THEN 'dead'
        ELSE 'pending' END AS status
    FROM {q} m, t, queue WHERE m.rank IN (SELECT rank FROM ranks) AND m.id = $2::uuid
    FOR UPDATE OF m
),
waiting AS (SELECT m.rank, m.waits AS status FROM {w} m WHERE m.id = $2::uuid FOR UPDATE OF m)
SELECT rank, status FROM live UNION ALL SELECT rank, status FROM waiting
