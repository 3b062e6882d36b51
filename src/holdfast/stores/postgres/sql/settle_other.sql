-- Retried, released or ended without success by the holders of their leases; or ($8) by nobody, since the lease is over.
-- A message with no attempt left is dead, or failed where the queue keeps no dead letters.
-- $1 queue  $2 ids  $3 ranks  $4 tokens  $5 actions: 1 retry, 2 dead, 3 release  $6 delays  $7 errors  $8 expired
-- $9 workers  $10 whether the caller can take what moves to another queue; if not, nothing is done where that may be
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
queue AS MATERIALIZED (SELECT id, max_attempts, archive, dead_letter FROM {schema}.queues WHERE name = $1),
held AS (
    DELETE FROM {q} q
    USING unnest($2::uuid[], $3::smallint[], $4::bigint[], $5::integer[], $6::float8[], $7::text[], $9::text[])
        AS i (id, rank, token, action, delay, error, worker), t
    WHERE q.rank = i.rank AND q.id = i.id AND q.token = i.token AND (NOT $8::boolean OR q.visible_at <= t.now)
        AND ($10::boolean OR (SELECT coalesce(dead_letter, '') = '' FROM queue))
    RETURNING q.*, i.action, i.delay, i.error AS new_error, coalesce(i.worker, q.worker) AS by
),
judged AS MATERIALIZED (
    SELECT held.*, coalesce(new_error, held.error) AS last_error, t.now, queue.id AS queue, queue.archive,
        queue.dead_letter,
        CASE
            WHEN action = 3 OR (action = 1 AND attempts < coalesce(held.max_attempts, queue.max_attempts)) THEN
                CASE WHEN delay > 0 THEN 'wait' ELSE 'back' END
            WHEN queue.dead_letter IS NULL THEN 'dead'
            ELSE 'failed'
        END AS verdict,
        CASE WHEN $8::boolean THEN used
            ELSE (coalesce(used, '{}') || (token * 4 + action))[greatest(1, cardinality(used) - 14):] END AS tokens,
        CASE WHEN action = 3 THEN attempts - 1 ELSE attempts END AS counted_attempts{tried}
    FROM held, t, queue
),
back AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, attempts, max_attempts, rank, recovered, used, content_type, headers,
        error, worker, payload, expires{history})
    SELECT id, enqueued_at, now, counted_attempts, max_attempts, rank, recovered, tokens, content_type, headers,
        last_error, by, payload, expires{after}
    FROM judged WHERE verdict = 'back'
),
waiting AS (
    INSERT INTO {w} (id, enqueued_at, visible_at, attempts, max_attempts, rank, recovered, used, content_type, headers,
        error, worker, payload, waits, expires{history})
    SELECT id, enqueued_at, now + delay * interval '1 second', counted_attempts, max_attempts, rank, recovered, tokens,
        content_type, headers, last_error, by, payload,
        CASE WHEN counted_attempts = 0 THEN 'delayed' ELSE 'retry' END, expires{after}
    FROM judged WHERE verdict = 'wait'
),
dead AS (
    INSERT INTO {d} (id, enqueued_at, visible_at, attempts, max_attempts, rank, recovered, used, content_type, headers,
        error, worker, payload, finished_at, claimed_at, expires{history})
    SELECT id, enqueued_at, now, attempts, max_attempts, rank, recovered, tokens, content_type, headers,
        coalesce(last_error, 'dead'), by, payload, now, claimed_at, expires{history}
    FROM judged WHERE verdict = 'dead'
),
failed AS (
    INSERT INTO {a} (id, enqueued_at, finished_at, attempts, max_attempts, rank, used, status, content_type, headers, error,
        worker, payload, claimed_at, expires{history})
    SELECT id, enqueued_at, now, attempts, max_attempts, rank, tokens, 'failed', content_type, headers,
        coalesce(last_error, 'dead'), by, payload, claimed_at, expires{history}
    FROM judged WHERE verdict = 'failed' AND archive
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queue, token * 4 + action, ARRAY[id], now FROM judged WHERE verdict = 'failed' AND NOT archive
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, live, delayed, retry, dead, archived, failed)
    SELECT queue, (now AT TIME ZONE 'UTC')::date,
        -count(*) FILTER (WHERE verdict <> 'back'),
        count(*) FILTER (WHERE verdict = 'wait' AND counted_attempts = 0),
        count(*) FILTER (WHERE verdict = 'wait' AND counted_attempts > 0),
        count(*) FILTER (WHERE verdict = 'dead'),
        count(*) FILTER (WHERE verdict = 'failed' AND archive),
        count(*) FILTER (WHERE verdict = 'failed')
    FROM judged GROUP BY queue, now
)
SELECT id, token, attempts, verdict, nullif(dead_letter, '') AS target,
    CASE WHEN verdict = 'failed' AND dead_letter <> '' THEN payload END AS payload,
    content_type, headers, rank, coalesce(last_error, 'dead') AS reason
FROM judged
