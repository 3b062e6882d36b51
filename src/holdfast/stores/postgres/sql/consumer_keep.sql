-- $1 queue's id  $2 name  $3 state
INSERT INTO {schema}.consumers (queue, name, state) VALUES ($1::integer, $2::text, $3::json)
ON CONFLICT (queue, name) DO UPDATE SET state = excluded.state
