-- Complete what a claim batch still holds.  $1 queue  $2 consumer  $3 seq  $4 worker
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, archive FROM {schema}.queues WHERE name = $1),
batch AS (
    DELETE FROM {schema}.batches b USING queue WHERE b.queue = queue.id AND b.consumer = $2::text AND b.seq = $3::bigint
    RETURNING b.*
),
gone AS (
    DELETE FROM {q} q USING batch b
    WHERE (q.rank, q.id) >= (b.cut_ranks[1], b.cut_ids[1])
        AND (q.rank, q.id) <= (b.cut_ranks[cardinality(b.cut_ranks)], b.cut_ids[cardinality(b.cut_ids)])
        AND q.token = b.token
    RETURNING q.*
),
kept AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, token, attempts, max_attempts, rank, used, status, content_type, headers,
        error, worker, payload, claimed_at, expires{history})
    SELECT g.id, g.enqueued_at, t.now, g.token, g.attempts, g.max_attempts, g.rank, g.used, 'completed', g.content_type,
        g.headers, g.error, $4::text, g.payload, g.claimed_at, expires{history}
    FROM gone g, t, queue WHERE queue.archive
    RETURNING 1
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, live, archived, completed)
    SELECT queue.id, (t.now AT TIME ZONE 'UTC')::date, -g.n, (SELECT count(*) FROM kept), g.n
    FROM queue, t, (SELECT count(*) AS n FROM gone) g WHERE g.n > 0
)
SELECT count(*) FROM gone
