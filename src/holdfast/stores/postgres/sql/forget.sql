-- What a queue need not remember any more: keys whose window is over, or whose message has ended if they held until
-- then; settlements older than an hour.  $1 queue
WITH k AS (
    DELETE FROM {schema}.keys WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1)
        AND until <= (SELECT {schema}.now()) RETURNING 1
),
ended AS MATERIALIZED (
    SELECT key, id FROM {schema}.keys k
    WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1) AND until = 'infinity'
        AND NOT EXISTS (SELECT FROM {q} m WHERE m.id = k.id) AND NOT EXISTS (SELECT FROM {w} m WHERE m.id = k.id)
),
l AS (
    DELETE FROM {schema}.keys USING ended
    WHERE keys.queue = (SELECT id FROM {schema}.queues WHERE name = $1) AND keys.key = ended.key
        AND keys.id = ended.id  -- of another message meanwhile, it stays
    RETURNING 1
),
s AS (
    DELETE FROM {schema}.settled WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1)
        AND at < (SELECT {schema}.now()) - interval '1 hour' RETURNING 1
)
SELECT (SELECT count(*) FROM k) + (SELECT count(*) FROM l) + (SELECT count(*) FROM s) AS forgotten
