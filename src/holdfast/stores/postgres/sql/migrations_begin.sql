CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.migrations (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp());
