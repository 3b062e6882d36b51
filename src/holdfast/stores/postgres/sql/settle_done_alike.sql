-- Completed by the holder of their leases, without results: messages of one claim and priority, out of the queue and
-- into the archive; how many, and which if not all.
-- $1 queue  $2 ids  $3 rank  $4 token  $5 keep  $6 worker
WITH queue AS MATERIALIZED (
    SELECT id, coalesce($5::boolean, archive) AS keep, {schema}.now() AS now FROM {schema}.queues WHERE name = $1
),
gone AS (
    DELETE FROM {q} q WHERE q.rank = $3::smallint AND q.id = ANY ($2::uuid[]) AND q.token = $4::bigint
    RETURNING q.id, q.enqueued_at, q.attempts, q.max_attempts, q.used, q.content_type, q.headers, q.error, q.payload,
        q.claimed_at, q.expires{q_history}, q.worker
),
kept AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, token, attempts, max_attempts, rank, used, status, content_type, headers,
        error, worker, payload, claimed_at, expires{history})
    SELECT gone.id, enqueued_at, queue.now, $4::bigint, attempts, max_attempts, $3::smallint, used, 'completed',
        content_type, headers, error, coalesce($6::text, worker), payload, claimed_at, expires{history}
    FROM gone, queue WHERE queue.keep
),
done AS MATERIALIZED (
    SELECT n, CASE WHEN n < cardinality($2::uuid[]) THEN ARRAY(SELECT id FROM gone) END AS ids
    FROM (SELECT count(*) AS n FROM gone) g
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queue.id, $4::bigint * 4, coalesce(done.ids, $2::uuid[]), queue.now
    FROM queue, done WHERE n > 0 AND NOT queue.keep
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, live, archived, completed)
    SELECT queue.id, (queue.now AT TIME ZONE 'UTC')::date, -n, CASE WHEN queue.keep THEN n ELSE 0 END, n
    FROM queue, done WHERE n > 0
)
SELECT n, ids FROM done
