-- The last part of an append by COPY.  $1 queue  $2 ready  $3 waiting
INSERT INTO {schema}.deltas (queue, live, delayed)
SELECT id, $2::bigint, $3::bigint FROM {schema}.queues WHERE name = $1
