-- The dedup keys of staged messages that nobody holds become theirs; those that another message holds are left out.
-- $1 queue  $2 stages  $3 seconds they are remembered
WITH queue AS MATERIALIZED (SELECT id FROM {schema}.queues WHERE name = $1),
ours AS MATERIALIZED (
    INSERT INTO {schema}.keys (queue, key, id, until)
    SELECT DISTINCT ON (s.key) queue.id, s.key, s.id, {schema}.now() + $3::float8 * interval '1 second'
    FROM {schema}.staged s, queue WHERE s.stage = ANY ($2::uuid[]) AND s.key IS NOT NULL
    ORDER BY s.key, s.stage, s.place
    ON CONFLICT (queue, key) DO UPDATE SET id = excluded.id, until = excluded.until
        WHERE keys.until <= (SELECT {schema}.now())
    RETURNING id
)
DELETE FROM {schema}.staged s
WHERE s.stage = ANY ($2::uuid[]) AND s.key IS NOT NULL AND s.id NOT IN (SELECT id FROM ours)
