-- What the server says of itself.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
    current_setting('fsync') AS fsync, current_setting('data_checksums') AS checksums, current_setting('synchronous_commit') AS commits,
    current_setting('server_encoding') AS encoding, current_setting('autovacuum') AS autovacuum, current_setting('max_connections')::integer AS most,
    (SELECT count(*) FROM pg_stat_activity) AS used,
    (SELECT max(date_part('epoch', clock_timestamp() - xact_start)) FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()) AS oldest
