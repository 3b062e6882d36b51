"""convert: a lake of 0.1.0 becomes Delta tables with the same rows, marks and replays, whatever is killed."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs
from holdfast.spark.lake import Lake, compacting, converting, reading, tables
from tests.spark.jobs.stories import dead_of, story
from tests.spark.jobs.test_replay import look, make
from tests.spark.lake.engines import same

NEW = ("kind", "reason", "fingerprint")


def as_before(folder: Path, lake: Path, url: str) -> int:
    """Write what is in a lake as 0.1.0 did, into another folder; how many messages."""
    rows = messages_of(lake)
    rows = rows.select([name for name in rows.schema.names if name not in NEW])
    half = rows.num_rows // 2
    files = [
        write(folder, "messages", rows.slice(0, half)),
        write(folder, "messages", rows.slice(half)),
        write(folder, "errors", rows.select(["id", "queue", "day", "finished_at", "error"])),
    ]
    sent = rows.slice(0, 3).select(["id", "queue", "day", "finished_at"])
    sent = sent.append_column("replay", pa.array(["feed"] * 3)).append_column("place", pa.array([0, 0, 0], pa.int64()))
    files.append(write(folder, "replayed", sent))
    last = max(at.timestamp() for at in rows["finished_at"].to_pylist())
    replay = {"url": url, "queue": "again", "rows": 3, "at": time.time(), "done": True, "rate": None}
    version = {"version": 2, "kind": "lake", "at": time.time(), "files": files, "marks": {f"{url}#emails": last}}
    version |= {"floor": "2020-01-01", "replays": {"feed": replay}, "format": 1}
    (folder / "_versions").mkdir()
    (folder / "_versions" / f"{1:012d}.json").write_text(json.dumps(version | {"version": 1, "files": files[:1]}))
    (folder / "_versions" / f"{2:012d}.json").write_text(json.dumps(version))
    return rows.num_rows


def messages_of(lake: Path) -> pa.Table:
    chosen = reading.Chosen(str(lake))
    names = list(tables.COLUMNS[tables.MESSAGES])
    return pa.Table.from_batches(
        [batch for task in reading.plan(chosen) for batch in reading.read(chosen, task, names)]
    ).sort_by("id")


def write(folder: Path, table: str, rows: pa.Table) -> dict[str, Any]:
    path = f"{table}/queue=emails/day=2026-01-01/{secrets.token_hex(12)}.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / path, compression="zstd", write_page_checksum=True)
    told = {"table": table, "path": path, "queue": "emails", "day": "2026-01-01", "rows": rows.num_rows}
    return told | {"size": (folder / path).stat().st_size, "first": 0.0, "last": 0.0}


def test_a_lake_of_before_is_the_same_as_delta_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, place = story(tmp_path, count=60), tmp_path / "old"
    jobs.lake(spark, "emails", tmp_path / "new", url=url)
    assert as_before(place, tmp_path / "new", url) == 60
    for job in (
        lambda: jobs.lake(spark, "emails", place, url=url),
        lambda: jobs.compact(spark, place),
        lambda: jobs.report(spark, place, tmp_path / "out"),
    ):
        with pytest.raises(holdfast.ConfigError, match="holdfast pipeline convert"):
            job()
    # killed before it tidies up: the old files are still there, and the next run takes them away
    tidy = converting._tidy
    monkeypatch.setattr(converting, "_tidy", lambda lake: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        jobs.convert(spark, place)
    monkeypatch.setattr(converting, "_tidy", tidy)
    done = jobs.convert(spark, place)
    assert (done.rows, done.replayed, done.version) == (60, 3, 0)
    with pytest.raises(holdfast.ConfigError, match="nothing to convert"):
        jobs.convert(spark, place)

    assert same(Lake(place)) == (60, 60)
    assert messages_of(place).equals(messages_of(tmp_path / "new"))
    assert reading.frame(spark, Lake(place), tables.ERRORS).where("fingerprint is not null").count() == dead_of(60)
    left = [path for path in place.rglob("*.parquet") if "part-" not in path.name]
    assert (left, (place / "errors").exists() and list((place / "errors").rglob("*.parquet"))) == ([], [])
    story(tmp_path, count=20, first=60)
    assert jobs.lake(spark, "emails", place, url=url).added == 20  # its marks are there
    make(url, "again")
    assert jobs.replay(spark, place, url=url, to="again").replayed == 77  # three went before
    assert len(look(url, "again")) == 77
    assert compacting.expired(Lake(place).messages, Lake(place).state(), "2020-01-01") is None
