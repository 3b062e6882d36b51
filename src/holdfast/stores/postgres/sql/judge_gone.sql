-- Settlements of messages that were not kept.  $1 queue  $2 entries
SELECT entry, ids FROM {schema}.settled, {schema}.queues
WHERE queues.name = $1 AND settled.queue = queues.id AND entry = ANY ($2::bigint[])
