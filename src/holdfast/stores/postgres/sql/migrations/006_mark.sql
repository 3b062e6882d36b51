-- Says that these tables and functions are Holdfast's: a table called `migrations` says so of anybody's.
CREATE TABLE {schema}.holdfast_mark (
    made_at timestamptz NOT NULL
);
INSERT INTO {schema}.holdfast_mark (made_at) VALUES ({schema}.now());
