-- Completed by the holders of their leases: out of the queue and into the archive.
-- $1 queue  $2 ids  $3 ranks  $4 tokens  $5 results  $6 keep  $7 workers
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, archive FROM {schema}.queues WHERE name = $1),
gone AS (
    DELETE FROM {q} q
    USING unnest($2::uuid[], $3::smallint[], $4::bigint[], $5::bytea[], $6::boolean[], $7::text[])
        AS i (id, rank, token, result, keep, worker), queue
    WHERE q.rank = i.rank AND q.id = i.id AND q.token = i.token
    RETURNING q.*, i.result, i.worker AS by, coalesce(i.keep, queue.archive) AS keep
),
kept AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, token, attempts, max_attempts, rank, used, status, content_type, headers,
        error, worker, result, payload)
    SELECT id, enqueued_at, t.now, token, attempts, max_attempts, rank, used, 'completed', content_type, headers,
        error, by, result, payload
    FROM gone, t WHERE keep
    RETURNING 1
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queue.id, gone.token * 4, array_agg(gone.id), t.now FROM gone, queue, t WHERE NOT keep
    GROUP BY queue.id, gone.token, t.now
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, live, archived, completed)
    SELECT queue.id, (t.now AT TIME ZONE 'UTC')::date, -g.n, (SELECT count(*) FROM kept), g.n
    FROM queue, t, (SELECT count(*) AS n FROM gone) g WHERE g.n > 0
)
SELECT id, token FROM gone
