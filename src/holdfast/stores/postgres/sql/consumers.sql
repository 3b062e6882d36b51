-- Everybody who has claimed batches of a queue.  $1 queue
SELECT c.name, c.state, date_part('epoch', {schema}.now()) AS now
FROM {schema}.consumers c, {schema}.queues WHERE queues.name = $1 AND c.queue = queues.id ORDER BY c.name
