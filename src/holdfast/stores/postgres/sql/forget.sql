-- What a queue need not remember any more: keys whose window is over, settlements older than an hour.  $1 queue
WITH k AS (
    DELETE FROM {schema}.keys WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1)
        AND until <= (SELECT {schema}.now()) RETURNING 1
),
s AS (
    DELETE FROM {schema}.settled WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1)
        AND at < (SELECT {schema}.now()) - interval '1 hour' RETURNING 1
)
SELECT (SELECT count(*) FROM k) + (SELECT count(*) FROM s) AS forgotten
