-- Which message holds each key.  $1 queue  $2 keys
SELECT keys.key, keys.id
FROM {schema}.keys, {schema}.queues
WHERE queues.name = $1 AND keys.queue = queues.id AND keys.key = ANY ($2::bytea[])
