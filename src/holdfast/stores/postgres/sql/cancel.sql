-- A message nobody holds ends as failed.  $1 queue  $2 id  $3 rank  $4 also one that is held
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, archive FROM {schema}.queues WHERE name = $1),
ready AS (
    DELETE FROM {q} q USING t
    WHERE q.rank = $3::smallint AND q.id = $2::uuid AND (q.token IS NULL OR q.visible_at <= t.now OR $4::boolean)
    RETURNING q.*, q.token IS NOT NULL AND $4::boolean AS ran
),
waiting AS (DELETE FROM {w} w WHERE w.id = $2::uuid RETURNING w.*),
gone AS (
    SELECT id, enqueued_at, attempts, max_attempts, rank, used, content_type, headers, worker, payload, 'live' AS was,
        CASE WHEN ran THEN claimed_at END AS claimed_at, expires{history}
    FROM ready
    UNION ALL
    SELECT id, enqueued_at, attempts, max_attempts, rank, used, content_type, headers, worker, payload, waits, NULL, expires{history}
    FROM waiting
),
kept AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, attempts, max_attempts, rank, used, status, content_type, headers, error,
        worker, payload, claimed_at, expires{history})
    SELECT gone.id, enqueued_at, t.now, attempts, max_attempts, rank, used, 'failed', content_type, headers, 'cancelled',
        worker, payload, claimed_at, expires{history}
    FROM gone, t, queue WHERE queue.archive
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, live, delayed, retry, archived, failed)
    SELECT queue.id, (t.now AT TIME ZONE 'UTC')::date, -(was = 'live')::int, -(was = 'delayed')::int,
        -(was = 'retry')::int, queue.archive::int, 1
    FROM gone, queue, t
)
SELECT id FROM gone
