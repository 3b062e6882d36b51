-- Dedup keys that nobody holds now become ours. Whoever races with us is waited for. A store of another kind has told
-- a restore only the hash of a key: that holds it too.
-- $1 queue  $2 keys  $3 ids  $4 seconds they are remembered  $5 their hashes
INSERT INTO {schema}.keys (queue, key, id, until)
SELECT queues.id, i.key, coalesce(known.id, i.id),
    coalesce(known.until, {schema}.now() + $4::float8 * interval '1 second')
FROM unnest($2::bytea[], $3::uuid[], $5::bytea[]) AS i (key, id, hash) CROSS JOIN {schema}.queues
LEFT JOIN {schema}.keys known
    ON known.queue = queues.id AND known.key = i.hash AND known.until > (SELECT {schema}.now())
WHERE queues.name = $1
ORDER BY i.key
ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, until = excluded.until
    WHERE keys.until <= (SELECT {schema}.now())
