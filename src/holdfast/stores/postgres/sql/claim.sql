-- Lease up to n messages, highest priority first, then oldest. What is due comes over from the waiting ones first.
-- A message that must run alone is the only one of its answer. Those whose last lease is over, or
-- that have expired (-1), are only told, and nothing is leased then: what they hide comes before what is due.
-- $1 queue  $2 n  $3 seconds  $4 token  $5 $6 $7 ranges of (rank, id): from, from, before rank  $8 rows to look at
-- $9 worker
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, max_attempts, no_retry FROM {schema}.queues WHERE name = $1 AND NOT paused),
due AS (
    DELETE FROM {w} WHERE id = ANY (ARRAY(
        SELECT w.id FROM {w} w, queue
        WHERE w.visible_at <= (SELECT now FROM t)
        ORDER BY w.visible_at LIMIT greatest($2::integer, 500) FOR UPDATE OF w SKIP LOCKED
    ))
    RETURNING *
),
ready AS MATERIALIZED (
    SELECT r.*
    FROM unnest($5::smallint[], $6::uuid[], $7::smallint[]) AS range (low_rank, low_id, end_rank), queue,
    LATERAL (
        SELECT q.ctid AS place, q.rank, q.id, q.attempts, q.token, q.recovered, q.max_attempts,
            q.expires AS expires
        FROM {q} q
        WHERE (q.rank, q.id) >= (range.low_rank, range.low_id) AND q.rank < range.end_rank
            AND q.visible_at <= (SELECT now FROM t)
        ORDER BY q.rank, q.id LIMIT $8::integer FOR UPDATE SKIP LOCKED
    ) r
    LIMIT $8::integer
),
judged AS MATERIALIZED (
    SELECT c.*,
        c.token IS NOT NULL AND (c.attempts >= coalesce(c.max_attempts, queue.max_attempts) OR queue.no_retry) AS spent,
        (c.token IS NOT NULL OR c.recovered) AND c.attempts + 1 = coalesce(c.max_attempts, queue.max_attempts) AS alone,
        queue.max_attempts AS usual, coalesce(c.expires <= (SELECT now FROM t), false) AS over
    FROM (
        SELECT place, rank, id, attempts, token, recovered, max_attempts, expires FROM ready
        UNION ALL SELECT NULL, rank, id, attempts, NULL, recovered, max_attempts, expires FROM due
    ) c, queue
),
chosen AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT *, row_number() OVER line AS nth, count(*) FILTER (WHERE alone) OVER line AS alones
        FROM judged WHERE NOT (SELECT coalesce(bool_or(spent OR over), false) FROM judged)
        WINDOW line AS (ORDER BY rank, id ROWS UNBOUNDED PRECEDING)
    ) c
    WHERE alones = 0 OR (alone AND nth = 1)
    ORDER BY rank, id LIMIT $2::integer
),
taken AS (
    UPDATE {q} q
    SET token = $4::bigint, visible_at = t.now + $3::float8 * interval '1 second', attempts = q.attempts + 1,
        recovered = c.recovered OR c.token IS NOT NULL, claimed_at = t.now, worker = $9::text{expired}
    FROM chosen c, t
    WHERE q.ctid = c.place
    RETURNING q.id, q.rank, q.payload, q.content_type, q.headers, q.attempts,
        coalesce(q.max_attempts, c.usual) AS most, q.enqueued_at, c.token IS NOT NULL AS again, c.alone, c.expires
),
brought AS MATERIALIZED (
    SELECT due.*, due.id IN (SELECT c.id FROM chosen c WHERE c.place IS NULL) AS picked,
        due.id IN (SELECT c.id FROM chosen c WHERE c.place IS NULL AND c.alone) AS alone
    FROM due
),
moved AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, token, attempts, max_attempts, rank, recovered, used, content_type,
        headers, error, worker, payload, claimed_at, expires{history})
    SELECT id, enqueued_at, CASE WHEN picked THEN t.now + $3::float8 * interval '1 second' ELSE visible_at END,
        CASE WHEN picked THEN $4::bigint END, attempts + picked::integer, max_attempts, rank, recovered, used,
        content_type, headers, error, CASE WHEN picked THEN $9::text ELSE worker END, payload,
        CASE WHEN picked THEN t.now END, expires{history}
    FROM brought, t
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, delayed, retry)
    SELECT queue.id, d.moved, -d.delayed, d.delayed - d.moved
    FROM queue, (SELECT count(*) AS moved, count(*) FILTER (WHERE waits = 'delayed') AS delayed FROM due) d
    WHERE d.moved > 0
)
SELECT id, rank, payload, content_type, headers, attempts, most, date_part('epoch', enqueued_at) AS enqueued_at, again,
    alone, date_part('epoch', t.now) AS now, NULL::bigint AS spent,
    date_part('epoch', expires) AS expires
FROM taken, t
UNION ALL
SELECT b.id, b.rank, b.payload, b.content_type, b.headers, b.attempts + 1, coalesce(b.max_attempts, queue.max_attempts),
    date_part('epoch', b.enqueued_at), false, b.alone, date_part('epoch', t.now), NULL,
    date_part('epoch', b.expires)
FROM brought b, queue, t WHERE b.picked
UNION ALL
SELECT id, rank, NULL, NULL, NULL, attempts, 0, 0, false, false, date_part('epoch', t.now),
    CASE WHEN spent THEN token ELSE -1 END, NULL
FROM judged, t WHERE spent OR over
