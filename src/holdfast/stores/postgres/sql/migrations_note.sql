-- A migration is there.  $1 name
INSERT INTO {schema}.migrations (name) VALUES ($1)
