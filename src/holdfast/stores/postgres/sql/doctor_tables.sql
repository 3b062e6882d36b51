-- Our tables, their dead rows and their size (NULL where one is dropped meanwhile).  $1 schema
SELECT relname AS name, n_dead_tup AS dead, coalesce(pg_total_relation_size(relid), 0) AS bytes
FROM pg_stat_all_tables WHERE schemaname = $1
