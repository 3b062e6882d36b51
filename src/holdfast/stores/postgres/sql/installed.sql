-- Whether our mark is there, or else what versions before it made.  $1 schema
-- By reading the catalog, not by to_regclass: that may answer from a cache of before we had the lock.
SELECT
    EXISTS (
        SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = 'holdfast_mark' AND c.relkind = 'r'
    ) AS marked,
    -- Their columns tell our tables from others of these names, such as the migrations of a web framework.
    (
        SELECT count(*) FROM (VALUES
            ('migrations', 'name'), ('migrations', 'applied_at'), ('queues', 'slug'), ('queues', 'no_retry'),
            ('settled', 'entry'), ('deltas', 'archived'), ('keys', 'until')
        ) AS known (relation, attribute)
        JOIN pg_catalog.pg_class c ON c.relname = known.relation AND c.relkind = 'r'
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = $1
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = known.attribute AND NOT a.attisdropped
    ) = 7 AS older
