-- Marks of schedules, held until the end of the transaction; who holds them moves them.  $1 queue  $2 names
SELECT s.name::text, s.mark::text FROM {schema}.holdfast_schedules s
WHERE s.queue = (SELECT q.id FROM {schema}.queues q WHERE q.name = $1::text) AND s.name = ANY ($2::text[])
FOR UPDATE SKIP LOCKED
