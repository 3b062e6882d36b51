-- Dead letters go: these, those that died before an instant, or all.  $1 queue  $2 ids or NULL  $3 before or NULL
WITH gone AS (
    DELETE FROM {d} d
    WHERE ($2::uuid[] IS NULL OR d.id = ANY ($2::uuid[]))
        AND ($3::float8 IS NULL OR d.finished_at < to_timestamp($3::float8))
    RETURNING 1
),
counted AS (
    INSERT INTO {schema}.deltas (queue, dead)
    SELECT queues.id, -(SELECT count(*) FROM gone) FROM {schema}.queues WHERE queues.name = $1
)
SELECT count(*) AS gone FROM gone
