-- Dedup keys that are remembered, and for how many seconds.  $1 queue's id  $2 instant
SELECT key, id::text, date_part('epoch', until - to_timestamp($2::float8)) AS left
FROM {schema}.keys WHERE queue = $1::integer AND until > to_timestamp($2::float8) AND until < 'infinity' ORDER BY key
