-- Lease up to n messages, highest priority first, then oldest, in the usual case: nothing is due among the waiting ones
-- and no message found has had a lease that ran out, or has expired. In any other case nothing is leased, and claim.sql has to be asked.
-- The last row is no message: whether that is so, and the time.
-- $1 queue  $2 n  $3 seconds  $4 token  $5 $6 $7 ranges of (rank, id): from, from, before rank  $8 worker
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT max_attempts FROM {schema}.queues WHERE name = $1 AND NOT paused),
ready AS MATERIALIZED (
    SELECT array_agg(place) AS places, coalesce(bool_or(lapsed), false) AS lapsed
    FROM (
        SELECT r.*
        FROM unnest($5::smallint[], $6::uuid[], $7::smallint[]) AS range (low_rank, low_id, end_rank), queue,
        LATERAL (
            SELECT q.ctid AS place, q.token IS NOT NULL OR q.recovered OR coalesce(q.expires <= (SELECT now FROM t), false) AS lapsed
            FROM {q} q
            WHERE (q.rank, q.id) >= (range.low_rank, range.low_id) AND q.rank < range.end_rank
                AND q.visible_at <= (SELECT now FROM t)
            ORDER BY q.rank, q.id LIMIT $2::integer FOR UPDATE SKIP LOCKED
        ) r
        LIMIT $2::integer
    ) first
),
unusual AS MATERIALIZED (
    SELECT lapsed OR EXISTS (SELECT FROM {w} w, queue WHERE w.visible_at <= (SELECT now FROM t)) AS so FROM ready
),
taken AS (
    UPDATE {q} q
    SET token = $4::bigint, visible_at = (SELECT now FROM t) + $3::float8 * interval '1 second', attempts = q.attempts + 1,
        claimed_at = (SELECT now FROM t), worker = $8::text
    WHERE q.ctid = ANY ((SELECT places FROM ready)::tid[]) AND NOT (SELECT so FROM unusual)
    RETURNING q.id, q.rank, q.payload, q.content_type, q.headers, q.attempts,
        coalesce(q.max_attempts, (SELECT max_attempts FROM queue)) AS most,
        date_part('epoch', q.expires) AS expires, date_part('epoch', q.enqueued_at) AS enqueued_at
)
SELECT id, rank, payload, content_type, headers, attempts, most, expires, enqueued_at FROM taken
UNION ALL
SELECT NULL, so::integer, NULL, NULL, NULL, NULL, NULL, NULL, date_part('epoch', t.now) FROM unusual, t
