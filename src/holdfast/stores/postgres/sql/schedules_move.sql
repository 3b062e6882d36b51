-- Move marks that are held.  $1 names  $2 marks
UPDATE {schema}.holdfast_schedules s SET mark = new.mark FROM unnest($1::text[], $2::json[]) AS new (name, mark)
WHERE s.name = new.name
