-- Marks of sinks.  $1 queue's id  $2 names  $3 batches  $4 instants
INSERT INTO {schema}.sinks (queue, name, batch, at)
SELECT $1::integer, s.name, s.batch, to_timestamp(s.at)
FROM unnest($2::text[], $3::bigint[], $4::float8[]) AS s (name, batch, at)
