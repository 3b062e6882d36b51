"""The tables of the lake: their columns, and what is said of a message's error."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...causes import cause
from ...stores import history
from .delta import Spec

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGES = "messages"  # one row for each message and way it ended
ERRORS = "errors"  # a view: the rows of `messages` that have an error
REPLAYED = "replayed"  # one row for each message that went back to a queue
TABLES = (MESSAGES, REPLAYED)  # what lies in the lake
VIEWS = (MESSAGES, ERRORS, REPLAYED)  # what can be read

_ATTEMPTS = "array<struct<start:timestamp,end:timestamp,worker:string,error:string>>"
# New columns come at the end: the first commit of this version adds those that a table has not.
COLUMNS: dict[str, dict[str, str]] = {
    MESSAGES: {
        "id": "string",
        "queue": "string",
        "day": "date",
        "status": "string",
        "value": "binary",
        "content_type": "string",
        "headers": "map<string,string>",
        "priority": "int",
        "attempts": "int",
        "max_attempts": "int",
        "enqueued_at": "timestamp",
        "claimed_at": "timestamp",
        "finished_at": "timestamp",
        "worker": "string",
        "result": "binary",
        "error": "string",
        "kind": "string",
        "reason": "string",
        "fingerprint": "string",
        "expires": "timestamp",
        "history": _ATTEMPTS,
    },
    ERRORS: {
        "id": "string",
        "queue": "string",
        "day": "date",
        "status": "string",
        "attempts": "int",
        "finished_at": "timestamp",
        "kind": "string",
        "reason": "string",
        "fingerprint": "string",
        "worker": "string",
        "error": "string",
    },
    REPLAYED: {
        "id": "string",
        "queue": "string",
        "finished_at": "timestamp",
        "deliver_at": "timestamp",
        "replay": "string",
        "store": "string",
        "to": "string",
    },
}
PARTITIONS = {MESSAGES: ("queue", "day"), REPLAYED: ("replay",)}  # Polars reads their values from the paths
_CAUSES = ("kind", "reason", "fingerprint")
_ATTEMPT = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("start", "timestamp"), ("end", "timestamp"), ("worker", "string"), ("error", "string"))
    ],
}
_DELTA: dict[str, Any] = {
    _ATTEMPTS: {"type": "array", "elementType": _ATTEMPT, "containsNull": True},
    "int": "integer",
    "bigint": "long",
    "map<string,string>": {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True},
}


def spec(table: str) -> Spec:
    """How Delta knows a table."""
    return Spec(tuple((name, _DELTA.get(kind, kind)) for name, kind in COLUMNS[table].items()), PARTITIONS[table])


def table_of(view: str) -> str:
    """The table that a view is of."""
    return MESSAGES if view == ERRORS else view


def ddl(view: str, only: tuple[str, ...] = ()) -> str:
    """The columns of a view, or some of them, as Spark reads them."""
    return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS[view].items() if not only or name in only)


@functools.cache
def arrow_schema(table: str) -> pa.Schema:
    import pyarrow as pa

    kinds: dict[str, Any] = {
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
        _ATTEMPTS: history.arrow_type(),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in COLUMNS[table].items()])


def as_table(rows: pa.Table, table: str) -> pa.Table:
    """Rows as a table has them; `day` is the UTC day on which a message finished, and errors are sorted by cause."""
    import pyarrow as pa

    made: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
    if table == MESSAGES:
        made["day"] = rows["finished_at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.date32())
        made |= _causes(rows["error"]) if "error" in made else {}
    schema = arrow_schema(table)
    columns = [
        made[field.name].cast(field.type) if field.name in made else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _causes(errors: pa.ChunkedArray) -> dict[str, pa.Array]:
    import pyarrow as pa

    if errors.null_count == len(errors):
        return {name: pa.nulls(len(errors), pa.string()) for name in _CAUSES}
    found = [None if text is None else cause(text) for text in errors.to_pylist()]
    return {name: pa.array([None if one is None else getattr(one, name) for one in found]) for name in _CAUSES}
