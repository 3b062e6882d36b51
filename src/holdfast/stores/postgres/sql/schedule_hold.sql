-- A schedule, held until the end of the transaction.  $1 name
SELECT q.name::text, s.plan::text FROM {schema}.holdfast_schedules s LEFT JOIN {schema}.queues q ON q.id = s.queue
WHERE s.name = $1::text
FOR UPDATE OF s
