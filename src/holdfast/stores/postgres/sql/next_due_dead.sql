-- When a dead letter will become visible; seconds from now.
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now)
SELECT date_part('epoch', (SELECT min(visible_at) FROM {d} WHERE visible_at > (SELECT now FROM t)) - t.now) AS seconds
FROM t
