-- Make or replace a schedule of a queue; its mark stays.  $1 name  $2 queue  $3 plan
INSERT INTO {schema}.holdfast_schedules (name, queue, plan)
SELECT $1::text, q.id, $3::json FROM {schema}.queues q WHERE q.name = $2::text
ON CONFLICT (name) DO UPDATE SET plan = excluded.plan WHERE holdfast_schedules.queue = excluded.queue
RETURNING queue
