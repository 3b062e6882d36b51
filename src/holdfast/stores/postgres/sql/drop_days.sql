-- $1 slug  $2 before
SELECT d FROM {schema}.drop_days($1, $2) AS d
