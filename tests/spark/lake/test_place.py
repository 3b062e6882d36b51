"""Lakes in buckets, on a real S3 server: the same commits, files and readers as in folders; and bad places are told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError
from holdfast.spark.lake import Change, Lake, LakeConflict, compacting, reading
from holdfast.spark.lake.place import open_place
from tests.spark.lake.engines import same
from tests.spark.lake.test_delta import DAY, added, files, rows
from tests.spark.test_streaming import without_keys

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def lake(s3: Any) -> Lake:
    return Lake(without_keys(s3.url))


def test_a_lake_in_a_bucket(lake: Lake) -> None:
    assert lake.state().version == -1
    assert not lake.is_old()
    for number in range(3):
        assert added(lake, number * 10, 10) == number
    empty_of = lake.messages.state(0)
    with pytest.raises(LakeConflict):
        lake.messages.commit(empty_of, Change("WRITE", add=files(lake, rows(90, 1)), marks={"q": 1}))
    base = lake.messages.state()
    assert (base.rows, base.mark("q")) == (30, 30)
    [group] = compacting.groups(base)
    [merged] = compacting.MergeTask(lake.messages.place.text)._merged(group)
    lake.messages.commit(base, Change("OPTIMIZE", add=(merged,), remove=tuple(group)))
    assert same(lake) == (30, 30)
    chosen = reading.Chosen(lake.text, since=(DAY + timedelta(microseconds=11)).timestamp())
    found = [id for task in reading.plan(chosen) for batch in reading.read(chosen, task, ["id"]) for id in batch["id"]]
    assert sorted(map(str, found)) == [f"{number:06d}" for number in range(10, 30)]
    assert compacting.sweep(lake, keep_versions=0.0) == 3
    assert same(lake) == (30, 30)
    lake.messages.checkpoint()
    assert added(lake, 30, 10) > 3
    assert same(lake) == (40, 40)


def test_bad_places_are_told(tmp_path: Path) -> None:
    for given, sentence in (
        ("postgresql://host/db", "cannot hold a lake"),
        ("s3://bucket/lake?secret_access_key=x", "has a secret in it"),
        ("s3a://bucket/lake", "unknown scheme"),
        ("s3:///lake", "which bucket"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            open_place(given)
    place = open_place(tmp_path / "new")
    assert (place.read("x"), place.names(""), place.shown) == (None, [], str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
