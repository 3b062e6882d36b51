-- Completed and not kept: messages of one claim and priority; how many, and which if not all.
-- $1 queue  $2 ids  $3 rank  $4 token
WITH queue AS MATERIALIZED (SELECT id, {schema}.now() AS now FROM {schema}.queues WHERE name = $1),
gone AS (
    DELETE FROM {q} q WHERE q.rank = $3::smallint AND q.id = ANY ($2::uuid[]) AND q.token = $4::bigint
    RETURNING q.id
),
done AS MATERIALIZED (
    SELECT n, CASE WHEN n < cardinality($2::uuid[]) THEN ARRAY(SELECT id FROM gone) END AS ids
    FROM (SELECT count(*) AS n FROM gone) g
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queue.id, $4::bigint * 4, coalesce(done.ids, $2::uuid[]), queue.now FROM queue, done WHERE n > 0
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, completed) SELECT queue.id, -n, n FROM queue, done WHERE n > 0
)
SELECT n, ids FROM done
