-- $1 slug  $2 day
SELECT {schema}.make_day($1, $2::date)
