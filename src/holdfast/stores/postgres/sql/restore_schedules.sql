-- Schedules and how far they have come.  $1 queue's id  $2 names  $3 plans  $4 marks
INSERT INTO {schema}.holdfast_schedules (name, queue, plan, mark)
SELECT s.name, $1::integer, s.plan, s.mark FROM unnest($2::text[], $3::json[], $4::json[]) AS s (name, plan, mark)
