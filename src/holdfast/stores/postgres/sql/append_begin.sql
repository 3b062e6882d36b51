-- The first part of an append by COPY: is the call new, and what time is it?
-- $1 call
WITH call AS (INSERT INTO {schema}.calls (id) VALUES ($1::uuid) ON CONFLICT DO NOTHING RETURNING id)
SELECT {schema}.now() AS now, EXISTS (SELECT FROM call) AS fresh
