-- Calls older than an hour: their ids begin with the time.  $1 the oldest id to keep
DELETE FROM {schema}.calls WHERE id < $1::uuid
