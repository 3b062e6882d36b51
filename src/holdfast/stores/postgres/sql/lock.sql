-- Nobody else who asks for this name goes on before the end of our transaction.  $1 name
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))
