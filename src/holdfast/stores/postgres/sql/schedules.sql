-- Schedules and their marks, by name.  $1 queue, or all  $2 name, or all
SELECT s.plan::text, s.mark::text FROM {schema}.holdfast_schedules s JOIN {schema}.queues q ON q.id = s.queue
WHERE ($1::text IS NULL OR q.name = $1::text) AND ($2::text IS NULL OR s.name = $2::text)
ORDER BY s.name COLLATE "C"
