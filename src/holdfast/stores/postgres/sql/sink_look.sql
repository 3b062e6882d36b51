-- The last batch a sink has published.  $1 queue  $2 sink
SELECT s.batch FROM {schema}.sinks s, {schema}.queues
WHERE queues.name = $1 AND s.queue = queues.id AND s.name = $2::text
