-- Dedup keys that nobody holds now become ours. Whoever races with us is waited for.
-- $1 queue  $2 keys  $3 ids  $4 seconds they are remembered
INSERT INTO {schema}.keys (queue, key, id, until)
SELECT queues.id, i.key, i.id, {schema}.now() + $4::float8 * interval '1 second'
FROM unnest($2::bytea[], $3::uuid[]) AS i (key, id), {schema}.queues
WHERE queues.name = $1
ORDER BY i.key
ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, until = excluded.until
    WHERE keys.until <= (SELECT {schema}.now())
