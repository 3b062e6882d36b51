-- Settled messages go: these, those that ended before an instant, or all.  $1 queue  $2 ids or NULL  $3 before or NULL
WITH gone AS (
    DELETE FROM {a} a
    WHERE ($2::uuid[] IS NULL OR a.id = ANY ($2::uuid[]))
        AND ($3::float8 IS NULL OR a.finished_at < to_timestamp($3::float8))
    RETURNING (a.finished_at AT TIME ZONE 'UTC')::date AS day
),
counted AS (
    INSERT INTO {schema}.deltas (queue, day, archived)
    SELECT queues.id, g.day, -g.n FROM {schema}.queues, (SELECT day, count(*) AS n FROM gone GROUP BY day) g
    WHERE queues.name = $1
)
SELECT count(*) AS gone FROM gone
