-- All queues, or ($1) one.
SELECT name, options, paused, date_part('epoch', created_at) AS created_at FROM {schema}.queues
WHERE $1::text IS NULL OR name = $1::text ORDER BY name COLLATE "C"
