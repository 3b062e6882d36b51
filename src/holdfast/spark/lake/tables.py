"""The tables of the lake: their columns, and how a row of `messages` becomes one of `errors`."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGES = "messages"  # one row for each message and way it ended
ERRORS = "errors"  # one row for each of them that has an error
REPLAYED = "replayed"  # one row for each message that went back to a queue
TABLES = (MESSAGES, ERRORS, REPLAYED)

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
        "day": "date",
        "finished_at": "timestamp",
        "replay": "string",
        "place": "bigint",
    },
}

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I)
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{16,}\b", re.I)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_FRAME = re.compile(r'^ *File "([^"]+)", line \d+, in (.+)$', re.M)
_KIND = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit|Interrupt|[A-Z]\w*)): ")
_NAME_CHARS = 200  # of a folder; file systems take 255 bytes, and files in it add to theirs


class Cause(NamedTuple):
    """What an error text says: the kind of exception, its first line without particulars, and both as one short key."""

    kind: str
    reason: str
    fingerprint: str


@functools.lru_cache(maxsize=10_000)
def cause(error: str) -> Cause:
    """Errors that differ only in numbers, ids, addresses and quoted words have the same fingerprint."""
    headline = error.partition("\n")[0].strip() or "no reason"
    found = _KIND.match(headline)
    kind = found[1] if found else ""
    reason = headline
    for pattern, sign in ((_QUOTED, "'…'"), (_UUID, "[id]"), (_ADDRESS, "[hex]"), (_NUMBER, "#")):
        reason = pattern.sub(sign, reason)
    reason = reason[:_NAME_CHARS]
    frames = _FRAME.findall(error)
    where = f"{frames[-1][0].rpartition('/')[2]}:{frames[-1][1]}" if frames else ""
    key = hashlib.blake2b(f"{reason}\n{where}".encode(), digest_size=6).hexdigest()
    return Cause(kind, reason, key)


def ddl(table: str) -> str:
    """The columns of a table as Spark reads them."""
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS[table].items())


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
    }
    return pa.schema([(name, kinds[kind]) for name, kind in COLUMNS[table].items()], metadata={"holdfast": "1"})


def errors_of(messages: pa.Table) -> pa.Table:
    """The rows of `errors` that belong to rows of `messages`."""
    import pyarrow as pa

    failed = messages.filter(messages["error"].is_valid())
    causes = [cause(text) for text in failed["error"].to_pylist()]
    said = {"kind": [one.kind for one in causes], "reason": [one.reason for one in causes]}
    said["fingerprint"] = [one.fingerprint for one in causes]
    schema = arrow_schema(ERRORS)
    columns = [pa.array(said[field.name], field.type) if field.name in said else failed[field.name] for field in schema]
    return pa.table(columns, schema=schema)
