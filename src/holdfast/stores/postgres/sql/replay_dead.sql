-- Dead letters move back, fresh.  $1 queue  $2 ids  $3 ranks  $4 new ids  $5 new headers
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
gone AS (
    DELETE FROM {d} d
    USING unnest($2::uuid[], $3::smallint[], $4::uuid[], $5::json[]) AS i (id, rank, new_id, new_headers)
    WHERE d.rank = i.rank AND d.id = i.id
    RETURNING i.new_id, i.new_headers, d.max_attempts, d.rank, d.content_type, d.payload
),
ready AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, max_attempts, rank, content_type, headers, payload)
    SELECT new_id, t.now, t.now, max_attempts, rank, content_type, new_headers, payload FROM gone, t
    ON CONFLICT DO NOTHING
    RETURNING 1
),
n AS (SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM ready) AS live),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, dead)
    SELECT queues.id, n.live, -n.gone FROM {schema}.queues, n WHERE queues.name = $1
)
SELECT live FROM n
