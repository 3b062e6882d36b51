-- Which migrations are there.
SELECT name FROM {schema}.migrations ORDER BY name
