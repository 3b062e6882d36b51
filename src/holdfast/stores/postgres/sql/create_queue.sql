-- $1 name  $2 slug  $3 options  $4 max_attempts  $5 no_retry  $6 archive  $7 dead_letter
SELECT {schema}.create_queue($1, $2, $3::json, $4::integer, $5::boolean, $6::boolean, $7)
