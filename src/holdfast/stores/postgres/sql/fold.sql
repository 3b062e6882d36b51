-- The deltas of a queue become one row a day; a day whose partition was dropped has archived none.  $1 queue  $2 days gone
WITH old AS (
    DELETE FROM {schema}.deltas WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1) RETURNING *
),
new AS (
    INSERT INTO {schema}.deltas (queue, day, live, delayed, retry, dead, archived, completed, failed)
    SELECT queue, kept_day, sum(live), sum(delayed), sum(retry), sum(dead), sum(kept), sum(completed), sum(failed)
    FROM (
        SELECT *, CASE WHEN day = ANY ($2::date[]) THEN 0 ELSE archived END AS kept,
            CASE WHEN archived <> 0 AND NOT day = ANY ($2::date[]) THEN day END AS kept_day
        FROM old
    ) o
    GROUP BY queue, kept_day
)
SELECT count(*) AS folded FROM old
