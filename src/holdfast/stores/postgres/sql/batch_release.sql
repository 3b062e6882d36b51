-- Give back what a claim batch still holds, as if it had not been claimed.  $1 queue  $2 consumer  $3 seq
WITH batch AS (
    DELETE FROM {schema}.batches b USING {schema}.queues
    WHERE queues.name = $1 AND b.queue = queues.id AND b.consumer = $2::text AND b.seq = $3::bigint
    RETURNING b.*
),
back AS (
    UPDATE {q} q SET token = NULL, visible_at = {schema}.now(), attempts = q.attempts - 1
    FROM batch b
    WHERE (q.rank, q.id) >= (b.cut_ranks[1], b.cut_ids[1])
        AND (q.rank, q.id) <= (b.cut_ranks[cardinality(b.cut_ranks)], b.cut_ids[cardinality(b.cut_ids)])
        AND q.token = b.token
    RETURNING 1
)
SELECT count(*) FROM back
