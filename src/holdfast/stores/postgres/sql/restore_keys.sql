-- Dedup keys with what is left of their time.  $1 queue's id  $2 keys  $3 ids  $4 seconds
INSERT INTO {schema}.keys (queue, key, id, until)
SELECT $1::integer, k.key, k.id, {schema}.now() + k.seconds * interval '1 second'
FROM unnest($2::bytea[], $3::uuid[], $4::float8[]) AS k (key, id, seconds)
ON CONFLICT DO NOTHING
