-- Lease up to n dead letters. They never run out of attempts.
-- $1 n  $2 seconds  $3 token  $4 queue  $5 worker
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
chosen AS MATERIALIZED (
    SELECT d.rank, d.id, d.token FROM {d} d WHERE d.visible_at <= (SELECT now FROM t)
    ORDER BY d.rank, d.id LIMIT $1::integer FOR UPDATE SKIP LOCKED
)
UPDATE {d} d
SET token = $3::bigint, visible_at = t.now + $2::float8 * interval '1 second', tries = d.tries + 1,
    tried_at = t.now, worker = $5::text
FROM chosen c, t, {schema}.queues
WHERE d.rank = c.rank AND d.id = c.id AND queues.name = $4
RETURNING d.id, d.rank, d.payload, d.content_type, d.headers, d.tries AS attempts,
    coalesce(d.max_attempts, queues.max_attempts) AS most, date_part('epoch', d.enqueued_at) AS enqueued_at,
    c.token IS NOT NULL AS again, false AS alone, date_part('epoch', t.now) AS now, NULL::bigint AS spent, NULL::float8 AS expires
