-- Our tables, their dead rows and their size.  $1 schema
SELECT relname AS name, n_dead_tup AS dead, pg_total_relation_size(relid) AS bytes
FROM pg_stat_all_tables WHERE schemaname = $1
