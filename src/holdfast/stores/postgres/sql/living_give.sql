-- A key that holds until its message ends is another message's now.  $1 queue  $2 key  $3 id
UPDATE {schema}.keys SET id = $3::uuid
WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1) AND key = $2::bytea
