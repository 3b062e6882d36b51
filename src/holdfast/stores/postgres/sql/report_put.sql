-- What a process with workers says of itself. No queue has the id 0.  $1 process  $2 report
INSERT INTO {schema}.consumers (queue, name, state) VALUES (0, $1::text, $2::json)
ON CONFLICT (queue, name) DO UPDATE SET state = excluded.state
