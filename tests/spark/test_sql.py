"""Queues in SQL: temporary views read and write them, tables of the catalog are refused."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import holdfast
from holdfast.errors import ConfigError
from holdfast.spark import HoldfastSource

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def url(tmp_path):
    """465 messages that are ready, and ten that ended."""
    url = f"file://{tmp_path}/store"
    with holdfast.sync.connect(url) as broker:
        emails = broker.queue("emails")
        emails.enqueue_many([{"n": n} for n in range(475)], priority=3)
        emails.complete_many(emails.dequeue_many(10))
    return url


def test_temporary_views_of_sql(spark, url):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW emails USING holdfast OPTIONS (url '{url}', queue 'emails')")
    assert spark.sql("SELECT count(*), max(priority) FROM emails WHERE attempt = 0").collect() == [(465, 3)]
    ended = f"USING holdfast OPTIONS (url '{url}', path 'emails', `view` 'archive', status 'completed')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW done (id string, status string) {ended}")
    query = "SELECT status, count(*) FROM done GROUP BY status"
    assert [tuple(row) for row in spark.sql(query).collect()] == [("completed", 10)]
    with pytest.raises(Exception, match="did you mean 'view'"):
        spark.sql(f"CREATE TEMPORARY VIEW wrong USING holdfast OPTIONS (url '{url}', queue 'emails', vieww 'dead')")


def test_a_temporary_view_takes_rows(spark, tmp_path):
    place = f"OPTIONS (url 'file://{tmp_path}/store', queue 'orders', contentType 'application/json')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders (value string, priority int) USING holdfast {place}")
    spark.sql("INSERT INTO orders SELECT to_json(struct(id)), 7 FROM range(3)")
    with holdfast.sync.connect(f"file://{tmp_path}/store") as broker:
        taken = broker.queue("orders").dequeue_many(10)
    assert sorted((each.value["id"], each.priority) for each in taken) == [(0, 7), (1, 7), (2, 7)]


def test_tables_of_the_catalog_are_refused_with_the_reason(spark, url):
    """Spark gives their options to nobody, so what they name would be another store than the one that was asked for."""
    options = f"USING holdfast OPTIONS (url '{url}', queue 'emails')"
    reason = "keeps the options of a table of its catalog to itself"
    with pytest.raises(Exception, match=reason):
        spark.sql(f"CREATE TABLE kept {options}")
    spark.sql(f"CREATE TABLE shaped (id string, value string) {options}")  # nobody is asked yet
    try:
        for statement in ("SELECT count(*) FROM shaped", "INSERT INTO shaped VALUES ('1', 'x')"):
            with pytest.raises(Exception, match=reason):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE shaped")
    with pytest.raises(ConfigError, match="read what"):
        HoldfastSource(CaseInsensitiveDict({})).schema()
