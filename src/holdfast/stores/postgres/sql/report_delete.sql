-- $1 process
DELETE FROM {schema}.consumers WHERE queue = 0 AND name = $1::text
