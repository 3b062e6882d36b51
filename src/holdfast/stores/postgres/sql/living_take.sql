-- A key that holds until its message ends: ours if it is new, else who has it. Whoever races with us is waited for.
-- $1 queue  $2 key  $3 id
INSERT INTO {schema}.keys (queue, key, id, until)
SELECT queues.id, $2::bytea, $3::uuid, 'infinity' FROM {schema}.queues WHERE queues.name = $1
ON CONFLICT (queue, key) DO UPDATE SET until = 'infinity'
RETURNING keys.id
