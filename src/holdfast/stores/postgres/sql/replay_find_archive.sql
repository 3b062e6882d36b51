-- Settled messages that were not replayed yet, and nobody else's until we are done.  $1 ids
SELECT a.id, a.headers FROM {a} a WHERE a.id = ANY ($1::uuid[]) AND NOT a.replayed ORDER BY a.id FOR UPDATE
