SELECT date_part('epoch', {schema}.now())
