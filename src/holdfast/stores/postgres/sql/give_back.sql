-- The claim of this token reached nobody: as if it had not been.  $1 token
UPDATE {q} SET token = NULL, visible_at = {schema}.now(), attempts = attempts - 1 WHERE token = $1::bigint
