-- Settled messages are copied back, fresh, once.  $1 queue  $2 ids  $3 new ids  $4 new headers
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
copied AS (
    UPDATE {a} a SET replayed = true
    FROM unnest($2::uuid[], $3::uuid[], $4::json[]) AS i (id, new_id, new_headers)
    WHERE a.id = i.id AND NOT a.replayed
    RETURNING i.new_id, i.new_headers, a.max_attempts, a.rank, a.content_type, a.payload
),
ready AS (
    INSERT INTO {q} (id, enqueued_at, visible_at, max_attempts, rank, content_type, headers, payload)
    SELECT new_id, t.now, t.now, max_attempts, rank, content_type, new_headers, payload FROM copied, t
    ON CONFLICT DO NOTHING
    RETURNING 1
),
n AS (SELECT count(*) AS live FROM ready),
counted AS (
    INSERT INTO {schema}.deltas (queue, live) SELECT queues.id, n.live FROM {schema}.queues, n WHERE queues.name = $1
)
SELECT live FROM n
