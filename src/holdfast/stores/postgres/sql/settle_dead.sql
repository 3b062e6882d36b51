-- Dead letters in hand: completed ones end in the archive, all others stay dead and are visible again later.
-- $1 queue  $2 ids  $3 ranks  $4 tokens  $5 actions: 0 complete, 1 retry, 2 dead, 3 release  $6 delays  $7 errors
-- $8 workers  $9 results  $10 keep
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, archive FROM {schema}.queues WHERE name = $1),
input AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::smallint[], $4::bigint[], $5::integer[], $6::float8[], $7::text[], $8::text[],
        $9::bytea[], $10::boolean[]) AS i (id, rank, token, action, delay, error, worker, result, keep)
),
gone AS (
    DELETE FROM {d} d USING input i, queue
    WHERE i.action = 0 AND d.rank = i.rank AND d.id = i.id AND d.token = i.token
    RETURNING d.*, i.result, coalesce(i.worker, d.worker) AS by, coalesce(i.keep, queue.archive) AS keep
),
kept AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, token, attempts, max_attempts, rank, used, status, content_type, headers,
        error, worker, result, payload, claimed_at, expires{history})
    SELECT id, enqueued_at, t.now, token, attempts, max_attempts, rank, used, 'completed', content_type, headers,
        error, by, result, payload, tried_at, expires{history}
    FROM gone, t WHERE keep
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queue.id, gone.token * 4, ARRAY[gone.id], t.now FROM gone, queue, t WHERE NOT keep
),
stayed AS (
    UPDATE {d} d
    SET token = NULL, visible_at = t.now + i.delay * interval '1 second', error = coalesce(i.error, d.error),
        worker = coalesce(i.worker, d.worker), tries = CASE WHEN i.action = 3 THEN d.tries - 1 ELSE d.tries END,
        waits = CASE WHEN i.action = 3 AND d.tries = 1 THEN 'delayed' ELSE 'retry' END,
        used = (coalesce(d.used, '{}') || (d.token * 4 + i.action))[greatest(1, cardinality(d.used) - 14):]
    FROM input i, t
    WHERE i.action > 0 AND d.rank = i.rank AND d.id = i.id AND d.token = i.token
    RETURNING d.id, i.token
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, dead, archived, completed)
    SELECT queue.id, (t.now AT TIME ZONE 'UTC')::date, -g.n, g.kept, g.n
    FROM queue, t, (SELECT count(*) AS n, count(*) FILTER (WHERE keep) AS kept FROM gone) g WHERE g.n > 0
)
SELECT id, token FROM gone UNION ALL SELECT id, token FROM stayed
