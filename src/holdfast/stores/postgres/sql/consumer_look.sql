-- A consumer and the store's time.  $1 queue  $2 name
SELECT queues.id, date_part('epoch', {schema}.now()) AS now,
    (SELECT state FROM {schema}.consumers WHERE queue = queues.id AND name = $2::text) AS state
FROM {schema}.queues WHERE queues.name = $1
