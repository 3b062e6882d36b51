-- A batch of messages some of which expire, unless their call has arrived before: those due now, and those that wait.
-- $1 queue  $2 call  $3 ids  $4 ranks  $5 delays  $6 instants  $7 content types  $8 headers  $9 max_attempts
-- $10 payloads  $11 channel of the notification, if this statement carries it  $12 instants of expiry
-- $13 seconds until then
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
call AS (INSERT INTO {schema}.calls (id) VALUES ($2::uuid) ON CONFLICT DO NOTHING RETURNING id),
sent AS MATERIALIZED (
    SELECT i.*, coalesce(to_timestamp(i.at), t.now + i.delay * interval '1 second') AS due, t.now,
        coalesce(to_timestamp(i.until), t.now + i.lifetime * interval '1 second') AS expires
    FROM unnest($3::uuid[], $4::smallint[], $5::float8[], $6::float8[], $7::text[], $8::json[], $9::integer[],
        $10::bytea[], $12::float8[], $13::float8[])
        AS i (id, rank, delay, at, content_type, headers, max_attempts, payload, until, lifetime), t, call
),
ready AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, max_attempts, rank, content_type, headers, payload, expires)
    SELECT id, now, now, max_attempts, rank, content_type, headers, payload, expires FROM sent WHERE due <= now
    RETURNING 1
),
waiting AS (
    INSERT INTO {w} (id, enqueued_at, visible_at, max_attempts, rank, content_type, headers, payload, waits, expires)
    SELECT id, now, due, max_attempts, rank, content_type, headers, payload, 'delayed', expires FROM sent WHERE due > now
    RETURNING 1
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, delayed)
    SELECT queues.id, (SELECT count(*) FROM ready), (SELECT count(*) FROM waiting)
    FROM {schema}.queues, call WHERE queues.name = $1
)
SELECT date_part('epoch', t.now) AS now, EXISTS (SELECT FROM call) AS fresh,
    CASE WHEN $11::text IS NOT NULL THEN pg_notify($11::text, $1::text)::text END AS told
FROM t
