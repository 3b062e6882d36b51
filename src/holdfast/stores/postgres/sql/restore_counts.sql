-- Counts of a restored queue.  $1 id  $2 live  $3 delayed  $4 retry  $5 dead  $6 completed  $7 failed  $8 days
-- $9 archived on them
INSERT INTO {schema}.deltas (queue, day, live, delayed, retry, dead, archived, completed, failed)
SELECT $1::integer, NULL::date, $2::bigint, $3::bigint, $4::bigint, $5::bigint, 0, $6::bigint, $7::bigint
UNION ALL
SELECT $1::integer, a.day, 0, 0, 0, 0, a.archived, 0, 0 FROM unnest($8::date[], $9::bigint[]) AS a (day, archived)
