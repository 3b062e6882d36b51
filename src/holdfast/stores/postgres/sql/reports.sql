-- What processes with workers say of themselves.
SELECT c.state::text FROM {schema}.consumers c WHERE c.queue = 0 ORDER BY c.name
