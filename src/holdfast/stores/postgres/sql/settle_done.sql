-- Completed by the holders of their leases: out of the queue and into the archive; how many, and which if not all.
-- $1 queue  $2 ids  $3 ranks  $4 tokens  $5 results  $6 keep  $7 workers
WITH queue AS MATERIALIZED (SELECT id, archive, {schema}.now() AS now FROM {schema}.queues WHERE name = $1),
gone AS (
    DELETE FROM {q} q
    USING unnest($2::uuid[], $3::smallint[], $4::bigint[], $5::bytea[], $6::boolean[], $7::text[])
        AS i (id, rank, token, result, keep, worker), queue
    WHERE q.rank = i.rank AND q.id = i.id AND q.token = i.token
    RETURNING q.id, q.enqueued_at, q.token, q.attempts, q.max_attempts, q.rank, q.used, q.content_type, q.headers,
        q.error, q.payload, q.claimed_at, q.expires{q_history}, i.result, coalesce(i.worker, q.worker) AS worker,
        coalesce(i.keep, queue.archive) AS keep
),
kept AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, token, attempts, max_attempts, rank, used, status, content_type, headers,
        error, worker, result, payload, claimed_at, expires{history})
    SELECT gone.id, enqueued_at, queue.now, token, attempts, max_attempts, rank, used, 'completed', content_type, headers,
        error, worker, result, payload, claimed_at, expires{history}
    FROM gone, queue WHERE keep
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queue.id, g.entry, g.ids, queue.now
    FROM queue, (SELECT token * 4 AS entry, array_agg(id) AS ids FROM gone WHERE NOT keep GROUP BY token) g
),
done AS MATERIALIZED (SELECT count(*) AS n, count(*) FILTER (WHERE keep) AS kept FROM gone),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, live, archived, completed)
    SELECT queue.id, (queue.now AT TIME ZONE 'UTC')::date, -n, kept, n FROM queue, done WHERE n > 0
)
SELECT n, CASE WHEN n < cardinality($2::uuid[]) THEN ARRAY(SELECT id FROM gone) END AS ids,
    CASE WHEN n < cardinality($2::uuid[]) THEN ARRAY(SELECT token FROM gone) END AS tokens
FROM done
