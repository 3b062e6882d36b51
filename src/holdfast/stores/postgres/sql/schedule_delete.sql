-- $1 name
DELETE FROM {schema}.holdfast_schedules WHERE name = $1::text
