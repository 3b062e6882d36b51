-- $1 name  $2 paused
UPDATE {schema}.queues SET paused = $2::boolean WHERE name = $1 RETURNING id
