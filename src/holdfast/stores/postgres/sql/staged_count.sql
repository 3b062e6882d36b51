-- How many of the staged messages are there, and what else a publish must know.  $1 queue  $2 stages  $3 sink
SELECT (SELECT count(*) FROM {schema}.staged WHERE stage = ANY ($2::uuid[])) AS rows,
    (SELECT count(*) FROM {schema}.staged WHERE stage = ANY ($2::uuid[]) AND key IS NOT NULL) AS keyed,
    (SELECT s.batch FROM {schema}.sinks s WHERE s.queue = queues.id AND s.name = $3::text) AS batch,
    queues.id
FROM {schema}.queues WHERE queues.name = $1
