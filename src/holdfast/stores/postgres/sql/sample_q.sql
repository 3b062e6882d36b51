-- Some keys of a table, in order.  $1 percent of its pages
SELECT rank, id FROM {q} TABLESAMPLE SYSTEM ($1::float8) ORDER BY rank, id
