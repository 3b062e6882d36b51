-- Lease up to n messages for as long as it takes, highest priority first, then oldest, and note where they lie. Those
-- whose last lease is over are left out, and the first of them told.
-- $1 queue  $2 n  $3 token  $4 consumer  $5 seq  $6 rows between cuts
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, max_attempts, no_retry FROM {schema}.queues WHERE name = $1 AND NOT paused),
ready AS MATERIALIZED (
    SELECT q.ctid AS place, q.rank, q.id, q.token, octet_length(q.payload) AS size,
        q.token IS NOT NULL AND (q.attempts >= coalesce(q.max_attempts, queue.max_attempts) OR queue.no_retry) AS spent
    FROM {q} q, queue
    WHERE q.visible_at <= (SELECT now FROM t) AND (q.expires IS NULL OR q.expires > (SELECT now FROM t))
    ORDER BY q.rank, q.id LIMIT $2::integer FOR UPDATE OF q SKIP LOCKED
),
taken AS (
    UPDATE {q} q
    SET token = $3::bigint, visible_at = '9999-12-31 00:00+00', attempts = q.attempts + 1,
        recovered = q.recovered OR c.token IS NOT NULL, claimed_at = t.now, worker = 'spark/' || $4::text
    FROM ready c, t
    WHERE q.ctid = c.place AND NOT c.spent
    RETURNING q.rank, q.id, c.size
),
line AS MATERIALIZED (
    SELECT rank, id, size, row_number() OVER (ORDER BY rank, id) AS nth, count(*) OVER () AS rows FROM taken
),
noted AS (
    INSERT INTO {schema}.batches (queue, consumer, seq, token, rows, size, cut_ranks, cut_ids)
    SELECT queue.id, $4::text, $5::bigint, $3::bigint, l.rows, l.size, l.ranks, l.ids
    FROM queue, (
        SELECT count(*) AS rows, sum(size) AS size,
            array_agg(rank ORDER BY nth) FILTER (WHERE nth % $6::integer = 1 OR nth = rows) AS ranks,
            array_agg(id ORDER BY nth) FILTER (WHERE nth % $6::integer = 1 OR nth = rows) AS ids
        FROM line
    ) l
    WHERE l.rows > 0
)
SELECT (SELECT count(*) FROM line) AS rows,
    ARRAY(SELECT id FROM ready WHERE spent ORDER BY rank, id LIMIT 500) AS spent_ids,
    ARRAY(SELECT rank FROM ready WHERE spent ORDER BY rank, id LIMIT 500) AS spent_ranks,
    ARRAY(SELECT token FROM ready WHERE spent ORDER BY rank, id LIMIT 500) AS spent_tokens
