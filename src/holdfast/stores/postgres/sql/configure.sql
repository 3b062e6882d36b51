-- $1 name  $2 options  $3 max_attempts  $4 no_retry  $5 archive  $6 dead_letter
UPDATE {schema}.queues SET options = $2::json, max_attempts = $3::integer, no_retry = $4::boolean, archive = $5::boolean,
    dead_letter = $6
WHERE name = $1
RETURNING name, options, paused, date_part('epoch', created_at) AS created_at
