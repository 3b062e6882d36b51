"""A queue as a streaming table, and a view of it. Never refresh `orders` in full: the queue does not give twice."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Each message once, as long as its checkpoint is kept."""
    read = spark.readStream.format("holdfast").option("url", os.environ["STORE"]).option("consumer", "orders")
    fields = F.from_json(F.col("value").cast("string"), "country string, amount double")
    return read.load("orders").select("id", "enqueued_at", fields.alias("order")).select("id", "enqueued_at", "order.*")


@dp.materialized_view
def by_country() -> DataFrame:
    """Made again in every run."""
    return spark.read.table("orders").groupBy("country").agg(F.count("*").alias("orders"), F.sum("amount").alias("sum"))
