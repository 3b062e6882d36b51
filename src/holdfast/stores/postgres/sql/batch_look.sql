-- Where the messages of a claim batch lie.  $1 queue  $2 consumer  $3 seq
SELECT b.token, b.rows, b.size, b.cut_ranks, b.cut_ids::text[] AS cut_ids
FROM {schema}.batches b, {schema}.queues
WHERE queues.name = $1 AND b.queue = queues.id AND b.consumer = $2::text AND b.seq = $3::bigint
