-- A sink has published a batch.  $1 queue's id  $2 sink  $3 batch
INSERT INTO {schema}.sinks (queue, name, batch, at) VALUES ($1::integer, $2::text, $3::bigint, {schema}.now())
ON CONFLICT (queue, name) DO UPDATE SET batch = excluded.batch, at = excluded.at
