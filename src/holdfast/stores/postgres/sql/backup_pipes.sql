-- Consumers (state) and sinks (batch, at) of a queue.  $1 queue's id
SELECT name, state::text, NULL::bigint AS batch, NULL::float8 AS at FROM {schema}.consumers WHERE queue = $1::integer
UNION ALL
SELECT name, NULL, batch, date_part('epoch', at) FROM {schema}.sinks WHERE queue = $1::integer
