-- The messages of calls with names, all or none of each; where its name is known nothing is added. Those due now, and
-- those that wait.
-- $1 queue  $2 names  $3 first id of each call  $4 seconds they are remembered  $5 ids  $6 whose message each is: the
-- place of its call  $7 ranks  $8 delays  $9 instants  $10 content types  $11 headers  $12 max_attempts  $13 payloads
-- $14 channel of the notification, if this statement carries it
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
named AS (
    INSERT INTO {schema}.keys (queue, key, id, until)
    SELECT queues.id, i.key, i.id, t.now + $4::float8 * interval '1 second'
    FROM unnest($2::bytea[], $3::uuid[]) AS i (key, id), {schema}.queues, t
    WHERE queues.name = $1
    ORDER BY i.key
    ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, until = excluded.until
        WHERE keys.until <= (SELECT {schema}.now())
    RETURNING key
),
sent AS MATERIALIZED (
    SELECT i.*, coalesce(to_timestamp(i.at), t.now + i.delay * interval '1 second') AS due, t.now
    FROM unnest($5::uuid[], $6::integer[], $7::smallint[], $8::float8[], $9::float8[], $10::text[], $11::json[],
        $12::integer[], $13::bytea[])
        AS i (id, call, rank, delay, at, content_type, headers, max_attempts, payload), t, named
    WHERE named.key = ($2::bytea[])[i.call]
),
ready AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, max_attempts, rank, content_type, headers, payload)
    SELECT id, now, now, max_attempts, rank, content_type, headers, payload FROM sent WHERE due <= now
    RETURNING 1
),
waiting AS (
    INSERT INTO {w} (id, enqueued_at, visible_at, max_attempts, rank, content_type, headers, payload, waits)
    SELECT id, now, due, max_attempts, rank, content_type, headers, payload, 'delayed' FROM sent WHERE due > now
    RETURNING 1
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, delayed)
    SELECT queues.id, (SELECT count(*) FROM ready), (SELECT count(*) FROM waiting)
    FROM {schema}.queues WHERE queues.name = $1 AND EXISTS (SELECT FROM named)
)
SELECT date_part('epoch', t.now) AS now, ARRAY(SELECT key FROM named) AS fresh,
    CASE WHEN $14::text IS NOT NULL THEN pg_notify($14::text, $1::text)::text END AS told
FROM t
