-- Leases end so many seconds from now, never earlier than before.  $1 ids  $2 ranks  $3 tokens  $4 seconds
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now)
UPDATE {d} m
SET visible_at = greatest(m.visible_at, t.now + $4::float8 * interval '1 second')
FROM unnest($1::uuid[], $2::smallint[], $3::bigint[]) AS i (id, rank, token), t
WHERE m.rank = i.rank AND m.id = i.id AND m.token = i.token
RETURNING m.id, m.token, date_part('epoch', m.visible_at) AS until
