-- Settlements that changed nothing: who settled these messages, and are they known at all?
-- $1 ids  $2 ranks
WITH i AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::smallint[]) AS i (id, rank))
SELECT m.id, NULL::bigint AS token, m.used FROM {q} m JOIN i ON m.rank = i.rank AND m.id = i.id
UNION ALL SELECT m.id, NULL, m.used FROM {w} m JOIN i ON m.id = i.id
UNION ALL SELECT m.id, NULL, m.used FROM {d} m JOIN i ON m.rank = i.rank AND m.id = i.id
UNION ALL SELECT m.id, m.token, m.used FROM {a} m JOIN i ON m.id = i.id
