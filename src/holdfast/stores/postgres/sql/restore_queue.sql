-- What a restored queue has from before.  $1 id  $2 created at  $3 paused
UPDATE {schema}.queues SET created_at = to_timestamp($2::float8), paused = $3::boolean WHERE id = $1::integer
