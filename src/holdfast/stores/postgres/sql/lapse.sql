-- Messages that have expired and that nobody holds end as failed.  $1 queue  $2 limit
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, archive, max_attempts, no_retry FROM {schema}.queues WHERE name = $1),
over AS MATERIALIZED (
    SELECT q.rank, q.id FROM {q} q, queue
    WHERE q.expires <= (SELECT now FROM t) AND (q.token IS NULL OR (q.visible_at <= (SELECT now FROM t)
        AND q.attempts < coalesce(q.max_attempts, queue.max_attempts) AND NOT queue.no_retry))
    ORDER BY q.expires LIMIT $2::integer FOR UPDATE OF q SKIP LOCKED
),
ready AS (DELETE FROM {q} q USING over WHERE q.rank = over.rank AND q.id = over.id RETURNING q.*),
waiting AS (
    DELETE FROM {w} WHERE id = ANY (ARRAY(
        SELECT w.id FROM {w} w WHERE w.expires <= (SELECT now FROM t)
        ORDER BY w.expires LIMIT $2::integer FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
gone AS (
    SELECT id, enqueued_at, attempts, max_attempts, rank, used, content_type, headers, worker, payload, expires{history},
        'live' AS was
    FROM ready
    UNION ALL
    SELECT id, enqueued_at, attempts, max_attempts, rank, used, content_type, headers, worker, payload, expires{history}, waits
    FROM waiting
),
kept AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, attempts, max_attempts, rank, used, status, content_type, headers, error,
        worker, payload, expires{history})
    SELECT gone.id, enqueued_at, t.now, attempts, gone.max_attempts, rank, used, 'failed', content_type, headers, 'expired',
        worker, payload, expires{history}
    FROM gone, t, queue WHERE queue.archive
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, live, delayed, retry, archived, failed)
    SELECT queue.id, (t.now AT TIME ZONE 'UTC')::date, -g.live, -g.delayed, -g.retry,
        CASE WHEN queue.archive THEN g.n ELSE 0 END, g.n
    FROM queue, t, (
        SELECT count(*) AS n, count(*) FILTER (WHERE was = 'live') AS live,
            count(*) FILTER (WHERE was = 'delayed') AS delayed, count(*) FILTER (WHERE was = 'retry') AS retry
        FROM gone
    ) g
    WHERE g.n > 0
)
SELECT id, attempts FROM gone
