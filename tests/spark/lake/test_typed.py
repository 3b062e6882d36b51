"""Types as columns of a table, without Spark: every kind of field, what cannot be one, and who reads it."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import ConfigError
from holdfast.codecs import codec_for
from holdfast.spark.lake import Change
from holdfast.spark.lake.delta import Table, opened
from holdfast.spark.lake.place import open_place
from holdfast.spark.lake.typed import Layout, differences
from holdfast.spark.lake.writing import Writer
from tests.spark.jobs import table_types as types

AT = dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.UTC)
HOME = types.Place("Bonn", 53111)
ALL = types.Everything(
    *(7, 2.5, "tëxt", True, b"\0\xff", AT, AT.date(), decimal.Decimal("12.34"), uuid.UUID(int=5), types.Colour.BLUE),
    *(HOME, ["a", "b"], [HOME, types.Place("Ulm")], {"x": 1}),
    anything={"deep": [1, 2]},
)


def messages(payloads: list[bytes], kind: str = "application/json") -> Any:
    import pyarrow as pa

    count = len(payloads)
    return pa.record_batch(
        {
            "id": [f"{number:06d}" for number in range(count)],
            "value": pa.array(payloads, pa.binary()),
            "content_type": [kind] * count,
            "headers": pa.array([[("of", "test")]] * count, pa.map_(pa.string(), pa.string())),
            "priority": pa.array([3] * count, pa.int32()),
            "enqueued_at": pa.array(
                [AT + dt.timedelta(days=number) for number in range(count)], pa.timestamp("us", "UTC")
            ),
        }
    )


def table_of(folder: Path, type_: Any, values: list[Any], codec: str | None = None, **layout: Any) -> Path:
    """A Delta table of values, as executors and the driver make it."""
    chosen = pickle.loads(pickle.dumps(Layout(type_, **layout)))  # as it travels
    encoded = [codec_for(type_, codec).encode(value) for value in values]
    made = chosen.made(messages([payload for payload, _ in encoded], encoded[0][1] if encoded else ""))
    assert made.bad == []
    place = open_place(folder / "table")
    writer = Writer(place, chosen.partitions)
    writer.write(made.rows)
    table = Table(place, chosen.spec)
    table.commit(table.state(), Change("WRITE", add=tuple(writer.close()), marks={"test": 1}))
    return folder / "table"


def read_by_all(table: Path) -> list[dict[str, Any]]:
    """The rows, in which Polars, DuckDB, pandas and pyarrow agree on number and ids."""
    import duckdb
    import polars

    delta: Any = opened(open_place(table))
    dataset = delta.to_pyarrow_dataset()
    rows: list[dict[str, Any]] = polars.read_delta(str(table)).sort("message_id").to_dicts()
    ids = [row["message_id"] for row in rows]
    found: Any = duckdb.sql("select message_id from dataset order by 1")
    assert [row[0] for row in found.fetchall()] == ids
    assert sorted(dataset.to_table().to_pandas()["message_id"]) == ids
    return rows


@pytest.mark.parametrize("codec", [None, "msgpack"])
def test_every_kind_of_field(tmp_path: Path, codec: str | None) -> None:
    bare = msgspec.structs.replace(ALL, maybe="x", tags=[], places=[], counts={}, anything=None)
    first, second = read_by_all(table_of(tmp_path, types.Everything, [ALL, bare], codec))
    assert (first["whole"], first["real"], first["text"], first["flag"], first["raw"]) == (
        7,
        2.5,
        "tëxt",
        True,
        b"\0\xff",
    )
    assert (first["at"], first["day"], first["price"]) == (AT, AT.date(), decimal.Decimal("12.34"))
    assert (first["key"], first["colour"], first["maybe"]) == (str(uuid.UUID(int=5)), "blue", None)
    assert first["place"] == {"city": "Bonn", "zip": 53111}
    assert (first["tags"], first["places"][1]) == (["a", "b"], {"city": "Ulm", "zip": None})
    assert (first["counts"], json.loads(first["anything"])) == ({"x": 1}, {"deep": [1, 2]})
    assert (second["tags"], second["places"], second["counts"], second["maybe"]) == ([], [], {}, "x")
    assert (first["message_id"], first["message_enqueued_at"]) == ("000000", AT)


def test_records_of_every_library(tmp_path: Path) -> None:
    for name, type_, value, wanted in (
        ("renamed", types.Wire, types.Wire("Ada"), {"firstName": "Ada"}),
        ("array", types.Row, types.Row(1, "x", HOME), {"a": 1, "b": "x", "inner": {"city": "Bonn", "zip": 53111}}),
        ("dataclass", types.Parcel, types.Parcel(1.5, []), {"weight": 1.5, "stops": []}),
        ("typeddict", types.Reading, {"value": 2.0}, {"value": 2.0, "unit": None}),
        ("optional", types.Order | None, types.Order(1), {"n": 1, "to": "nobody"}),
    ):  # fmt: skip
        [row] = read_by_all(table_of(tmp_path / name, type_, [value]))
        assert {key: each for key, each in row.items() if not key.startswith("message_")} == wanted, name
    sent = b'{"id": 4, "name": "Ada", "memberSince": "2026-03-01T12:30:00Z", "address": {"city": "Ulm"}}'
    made = Layout(types.Customer).made(messages([sent, b'{"id": "x"}']))
    [row] = made.rows.to_pylist()
    assert (row["id"], row["fullName"], row["memberSince"], row["address"]) == (4, "Ada", AT, {"city": "Ulm"})
    assert [at for at, _ in made.bad] == [1]


def test_what_is_kept_of_the_message_and_days(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, types.Order, [types.Order(n) for n in range(3)], keep=("headers", "priority"), by_day=True
    )
    rows = read_by_all(table)
    assert [row["message_day"] for row in rows] == [AT.date() + dt.timedelta(days=n) for n in range(3)]
    assert (rows[0]["message_priority"], rows[0]["message_headers"]) == (3, {"of": "test"})
    assert "message_enqueued_at" not in rows[0]
    assert len(list(table.glob("message_day=2026-03-0?/*.parquet"))) == 3


def test_what_cannot_be_read_is_said_and_the_rest_is_rows() -> None:
    payloads = [b'{"n": 1}', b"[1", b'{"n": "x"}', b'{"n": 99999999999999999999}', b"null", b'{"n": 2, "more": 1}']
    made = Layout(types.Order).made(messages(payloads))
    assert made.rows["n"].to_pylist() == [1, 2]
    assert made.rows["message_id"].to_pylist() == ["000000", "000005"]
    assert [at for at, _ in made.bad] == [1, 2, 3, 4]
    assert all(reason.startswith("it cannot be read as Order: ") for _, reason in made.bad)
    assert Layout(types.Order).made(messages([])).rows.num_rows == 0


def test_types_that_cannot_be_columns_are_a_sentence() -> None:
    for type_, sentence in (
        (int, "int has no fields to make columns of"),
        (dict[str, int], "no fields to make columns of"),
        (types.Order | types.Wire, "no fields to make columns of"),
        (types.Empty, "Empty has no fields"),
        (types.Holder, r"Holder\.empty has no fields"),
        (types.Spaced, "cannot be called 'total amount'"),
        (types.Twice, "takes 'a' and 'A' for the same column"),
        (types.Taken, "has a field 'message_id', which the table needs"),
        (types.Node, "Node holds itself"),
        (types.Roots, "Roots has no fields to make columns of"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Layout(type_)
    with pytest.raises(ConfigError, match="did you mean 'headers'"):
        Layout(types.Order, keep=["header"])


def test_differences_of_tables_are_named() -> None:
    one, other = Layout(types.Order).spec.text, Layout(types.Later).spec.text
    assert differences(one, one) == ""
    assert sorted(differences(one, other).split("; ")) == [
        "it has no column 'more'",
        "its column 'n' is long, not string",
    ]
    assert "its column 'more' is new to this job" in differences(other, one)
