"""A Delta table: what it holds, read by delta-rs, and commits to its log, written by us.

The library's own commits are not synced to the disk, let two compactions at once both succeed, and cannot remove and
add in one. So a commit is one file of JSON that we create only if absent. Who comes second reads what the first did,
and goes on top of it or starts over. delta-rs does not survive a fork: it is imported when a table is opened, never
with a module.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from ...errors import ConfigError, StoreError
from ...escaping import logger_named
from .place import Place

if TYPE_CHECKING:
    from deltalake import DeltaTable

logger = logger_named("holdfast.spark")
LOG = "_delta_log"
READER, WRITER = 1, 2  # versions of the protocol: without deletion vectors and renamed columns, which we do not know
CHECKPOINT_COMMITS = 10  # Delta's own: a reader reads no more small files than that
_COMMIT_TRIES = 100  # lost races: only a fault in the file system loses so many
_ALL = "every mark"  # no name of a mark
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.=/-]+")  # the same in the log and in the file system

Kind: TypeAlias = Literal["WRITE", "OPTIMIZE", "DELETE"]


class LakeConflict(StoreError):
    """Another job committed first, and what we have planned is no longer right."""


class Spec(msgspec.Struct, frozen=True):
    """How a table is made: its columns as Delta writes them down, and those that its files are divided by."""

    columns: tuple[tuple[str, Any], ...]  # name and type
    partitions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in self.columns]
        return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


class File(msgspec.Struct, frozen=True):
    """A data file. Instants are seconds since 1970 of the first and the last `finished_at` in it, where it has one."""

    path: str  # below the table
    partition: dict[str, str | None]
    rows: int
    size: int
    stats: str = ""  # as Delta writes them down; empty in what was read
    first: float | None = None
    last: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether we know how it is written in the log; files of other programs may not be."""
        return _PLAIN_PATH.fullmatch(self.path) is not None

    def add(self, *, new_rows: bool) -> dict[str, Any]:
        told = {"path": self.path, "partitionValues": self.partition, "size": self.size}
        told |= {"modificationTime": _now(), "dataChange": new_rows, "stats": self.stats}
        return {"add": told}

    def remove(self, *, lost_rows: bool) -> dict[str, Any]:
        told = {"path": self.path, "partitionValues": self.partition, "size": self.size}
        told |= {"deletionTimestamp": _now(), "dataChange": lost_rows, "extendedFileMetadata": True}
        return {"remove": told}


class Change(msgspec.Struct, frozen=True):
    """What a commit does: files that come and go, and marks (`txn` actions), each of one writer.

    It fits on top of others' commits as long as none of them has one of its marks or removes one of its files.
    """

    kind: Kind
    add: tuple[File, ...] = ()
    remove: tuple[File, ...] = ()
    marks: dict[str, int] = {}

    def actions(self) -> list[dict[str, Any]]:
        changes = self.kind != "OPTIMIZE"
        marks = [{"txn": {"appId": name, "version": at, "lastUpdated": _now()}} for name, at in self.marks.items()]
        gone = [file.remove(lost_rows=changes) for file in self.remove]
        return [*marks, *gone, *(file.add(new_rows=changes) for file in self.add)]

    def fits(self, since: Sequence[dict[str, Any]]) -> bool:
        """Whether it may go on top of the actions of others."""
        gone = {file.path for file in self.remove}
        return not any(
            action.get("txn", {}).get("appId", _ALL) in self.marks or action.get("remove", {}).get("path") in gone
            for action in since
        )


class Bounds(NamedTuple):
    """The least and the greatest value of a column in a file; None where nobody has noted them."""

    path: str
    least: str | None = None
    most: str | None = None


class State:
    """One version of a table, complete; `version` is -1 before the first."""

    def __init__(self, version: int, files: tuple[File, ...], delta: DeltaTable | None) -> None:
        self.version = version
        self.files = files
        self._delta = delta

    def mark(self, name: str) -> int | None:
        """The last version that a writer has marked."""
        return None if self._delta is None else self._delta.transaction_version(name)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def bounds(self, column: str) -> list[Bounds]:
        """Of a column of text, in each file."""
        import pyarrow as pa

        if self._delta is None:
            return []
        rows = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return [Bounds(row["path"], row.get(f"min.{column}"), row.get(f"max.{column}")) for row in rows]

    @property
    def schema(self) -> str:
        """The columns as Delta writes them down."""
        assert self._delta is not None
        return str(self._delta.schema().to_json())

    def told(self, schema: str) -> dict[str, Any]:
        """What the log says of the table, but with other columns."""
        assert self._delta is not None
        known = self._delta.metadata()
        told = {"id": str(known.id), "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        told |= {"name": known.name, "description": known.description} if known.name else {}
        kept = {"partitionColumns": list(known.partition_columns), "configuration": dict(known.configuration)}
        return told | kept | {"createdTime": known.created_time}


class Table:
    """A table at its place. Opening makes nothing; the first commit does."""

    def __init__(self, place: Place, spec: Spec) -> None:
        self.place = place
        self.spec = spec

    def state(self, version: int | None = None) -> State:
        """A version of the table, or the newest; an empty one when there is none yet. ConfigError: no such version."""
        delta = opened(self.place, version)
        if delta is None:
            return State(-1, (), None)
        protocol = delta.protocol()
        if protocol.min_reader_version > READER or protocol.min_writer_version > WRITER:
            raise StoreError(
                f"{self.place.shown} has been changed by another program: it now wants reader version "
                f"{protocol.min_reader_version} and writer version {protocol.min_writer_version}, and holdfast knows "
                f"{READER} and {WRITER}. Copy it into a table without deletion vectors and column mapping"
            )
        return State(delta.version(), tuple(self._files(delta)), delta)

    def _files(self, delta: DeltaTable) -> Iterator[File]:
        import pyarrow as pa

        for row in pa.table(delta.get_add_actions(flatten=True)).to_pylist():
            parts = {name.removeprefix("partition."): value for name, value in row.items() if name.startswith("parti")}
            rows = row["num_records"]
            yield File(
                row["path"],
                {name: _text(value) for name, value in parts.items()},
                self._count(row["path"]) if rows is None else rows,
                row["size_bytes"],
                first=_seconds(row.get("min.finished_at")),
                last=_seconds(row.get("max.finished_at")),
            )

    def _count(self, path: str) -> int:
        """Of a file that another program added without statistics."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.place.source(path)) as file:
            return int(file.metadata.num_rows)

    def commit(self, base: State, change: Change) -> int:
        """The change on top of the newest version, whose number it answers; LakeConflict when it no longer fits."""
        version, begins = base.version + 1, self._begin() if base.version < 0 else self._widened(base)
        for _ in range(_COMMIT_TRIES):
            for before in range(max(0, version - CHECKPOINT_COMMITS), version):
                self.place.sync(name_of(before))  # a library may not have: ours must not outlive it
            lines = [_info(change.kind), *begins, *change.actions()]
            if self.place.create(name_of(version), b"".join(msgspec.json.encode(one) + b"\n" for one in lines)):
                if version % CHECKPOINT_COMMITS == 0 and version:
                    self.checkpoint()
                return version
            since = list(self._since(version))
            self._check_columns(since)
            if not change.fits([action for actions in since for action in actions]):
                raise LakeConflict("another job wrote to this lake meanwhile; nothing was added, run it again")
            if any("metaData" in action for actions in since for action in actions):
                begins = []
            version += len(since)
        raise LakeConflict("this lake is written to all the time; nothing was added, run it again later")

    def _begin(self) -> list[dict[str, Any]]:
        table: dict[str, Any] = {
            "id": _uuid(),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.spec.text,
        }
        table |= {"partitionColumns": self.spec.partitions, "configuration": {}, "createdTime": _now()}
        return [{"protocol": {"minReaderVersion": READER, "minWriterVersion": WRITER}}, {"metaData": table}]

    def _widened(self, base: State) -> list[dict[str, Any]]:
        """Columns that the table has not got yet, since it is older than they; its files have none of them."""
        fields = msgspec.json.decode(base.schema)["fields"]
        has = {field["name"] for field in fields}
        new = [field for field in msgspec.json.decode(self.spec.text)["fields"] if field["name"] not in has]
        return (
            [{"metaData": base.told(msgspec.json.encode({"type": "struct", "fields": fields + new}).decode())}]
            if new
            else []
        )

    def _since(self, version: int) -> Iterator[list[dict[str, Any]]]:
        """The actions of each commit from a version on."""
        while (data := self.place.read(name_of(version))) is not None:
            yield [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
            version += 1

    def _check_columns(self, since: Sequence[list[dict[str, Any]]]) -> None:
        for action in (action for actions in since for action in actions):
            made = action.get("metaData")
            if made is not None and msgspec.json.decode(made["schemaString"]) != msgspec.json.decode(self.spec.text):
                raise LakeConflict(f"{self.place.shown} has other columns since; nothing was added, run it again")

    def checkpoint(self) -> None:
        """Save readers the small files of the log. Nothing depends on it, so that it fails nothing."""
        try:
            delta = opened(self.place)
            if delta is not None:
                delta.create_checkpoint()
                self.place.sync(f"{LOG}/{delta.version():020d}.checkpoint.parquet")
                self.place.sync(f"{LOG}/_last_checkpoint")
        except Exception as error:  # noqa: BLE001 - the commit is there with or without it
            logger.warning("no checkpoint of %s: %s", self.place.shown, error)

    def __repr__(self) -> str:
        return f"Table({self.place.shown!r})"


def opened(place: Place, version: int | None = None) -> DeltaTable | None:
    """The table as delta-rs knows it, or None where there is none; ConfigError for a version that is not there."""
    if place.read(name_of(0)) is None and place.read(f"{LOG}/_last_checkpoint") is None:
        return None
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise ConfigError("lakes need an extra: pip install 'holdfast[lake]'") from error
    try:
        return DeltaTable(place.shown, version=version, storage_options=place.storage)
    except DeltaError as error:
        if version is None:
            raise StoreError(f"{place.shown} cannot be read: {error}") from error
        raise ConfigError(f"{place.shown} has no version {version}: {error}") from error


def table_at(place: Place) -> Table | None:
    """The table that lies there, with the columns it has."""
    delta = opened(place)
    if delta is None:
        return None
    fields = msgspec.json.decode(str(delta.schema().to_json()))["fields"]
    partitions = tuple(delta.metadata().partition_columns)
    return Table(place, Spec(tuple((field["name"], field["type"]) for field in fields), partitions))


def name_of(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def _info(kind: Kind) -> dict[str, Any]:
    from ... import __version__

    # The name makes the bytes of a commit its own: after a lost answer they tell whose file is there.
    told = {"timestamp": _now(), "operation": kind, "engineInfo": f"holdfast/{__version__}", "txnId": _uuid()}
    return {"commitInfo": told | {"operationParameters": {}, "isBlindAppend": False}}


def _uuid() -> str:
    text = secrets.token_hex(16)
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _now() -> int:
    return round(time.time() * 1000)


def _text(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)


def _seconds(moment: Any) -> float | None:
    return moment.astimezone(UTC).timestamp() if isinstance(moment, datetime) else None
