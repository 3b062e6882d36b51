-- Some keys of a table, in order.  $1 percent of its pages
SELECT 0::smallint AS rank, id FROM {a} TABLESAMPLE SYSTEM ($1::float8) ORDER BY id
