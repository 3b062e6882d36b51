-- A batch of messages that are all due now, unless their call has arrived before.
-- $1 queue  $2 call  $3 ids  $4 ranks  $5 content types  $6 headers  $7 max_attempts  $8 payloads
-- $9 channel of the notification, if this statement carries it
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
call AS (INSERT INTO {schema}.calls (id) VALUES ($2::uuid) ON CONFLICT DO NOTHING RETURNING id),
ready AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, max_attempts, rank, content_type, headers, payload)
    SELECT i.id, t.now, t.now, i.max_attempts, i.rank, i.content_type, i.headers, i.payload
    FROM unnest($3::uuid[], $4::smallint[], $5::text[], $6::json[], $7::integer[], $8::bytea[])
        AS i (id, rank, content_type, headers, max_attempts, payload), t, call
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live)
    SELECT queues.id, cardinality($3::uuid[]) FROM {schema}.queues, call WHERE queues.name = $1
)
SELECT date_part('epoch', t.now) AS now, EXISTS (SELECT FROM call) AS fresh,
    CASE WHEN $9::text IS NOT NULL THEN pg_notify($9::text, $1::text)::text END AS told
FROM t
