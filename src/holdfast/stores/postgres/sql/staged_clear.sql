-- What a stage holds from a place on goes.  $1 stage  $2 place
DELETE FROM {schema}.staged WHERE stage = $1::uuid AND place >= $2::integer
