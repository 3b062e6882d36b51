-- $1 name
SELECT {schema}.drop_queue($1)
