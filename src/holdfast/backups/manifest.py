"""What a backup consists of: one document, written last, that names every file with its checksum.

A target holds `manifest-<number>.json`, one for each backup, and `data/…`, which backups share:

data/<origin>-<place>[e]-<rows>-<crc-32>.parquet      `e`: the last file of this origin
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..config import QueueOptions
from ..errors import Damaged, StoreError
from ..first_look import known
from ..stores.consumers import Consumer
from ..stores.scheduling import Scheduled

FORMAT = 1  # of manifests
WITH_SCHEDULES = 2  # of those that have some, which versions that do not know them would lose
_FILE = re.compile(r"data/([0-9a-f]{32})-([0-9]{4})(e?)-([0-9]+)-([0-9a-f]{8})\.parquet")
_MANIFEST = re.compile(r"manifest-([0-9]{6})\.json")
_SUM = b"\ncrc32 "


class File(msgspec.Struct, frozen=True):
    """A file with rows of one section."""

    name: str
    rows: int
    bytes: int
    crc32: int


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A queue. Sections by name; a reader that does not know one leaves it, unless `needs` names it."""

    name: str
    at: float  # the instant that this is the state of, in seconds since 1970
    options: QueueOptions
    paused: bool
    created_at: float
    completed: int
    failed: int
    sections: dict[str, list[File]]
    consumers: dict[str, Consumer] = {}
    sinks: dict[str, tuple[int, float]] = {}
    schedules: list[Scheduled] = []

    def rows(self, section: str) -> int:
        return sum(file.rows for file in self.sections.get(section, ()))


@known
class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup."""

    format: int = FORMAT
    id: str
    number: int
    version: str  # of Holdfast
    made_at: float
    source: str  # the store's URL without credentials
    one_instant: bool  # all queues are of one
    queues: list[QueueEntry]

    def files(self) -> dict[str, File]:
        """Every file, by name."""
        found = (file for queue in self.queues for files in queue.sections.values() for file in files)
        return {file.name: file for file in found}

    @property
    def instant(self) -> str:
        """When: the state is that of this time, or of a time between these two."""
        instants = sorted({round(queue.at, 3) for queue in self.queues}) or [self.made_at]
        shown = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") for at in instants]
        return shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"


class _Peek(msgspec.Struct):
    format: int


def file_name(origin: str, place: int, rows: int, data: bytes, *, last: bool) -> str:
    return f"data/{origin}-{place:04d}{'e' if last else ''}-{rows}-{zlib.crc32(data):08x}.parquet"


def whole_origins(names: Iterable[str]) -> dict[str, list[tuple[str, int, int]]]:
    """The origins of which every file is there: name, rows and checksum of each."""
    places: dict[str, dict[int, list[tuple[str, int, int]]]] = {}
    ends: dict[str, set[int]] = {}
    for name in names:
        if (found := _FILE.fullmatch(name)) is not None:
            origin, place, last, rows, crc = found.groups()
            places.setdefault(origin, {}).setdefault(int(place), []).append((name, int(rows), int(crc, 16)))
            if last:
                ends.setdefault(origin, set()).add(int(place))
    return {
        origin: [found[place][0] for place in range(len(found))]
        for origin, found in places.items()
        if ends.get(origin) == {len(found) - 1} and set(found) == set(range(len(found)))
        if all(len(each) == 1 for each in found.values())
    }


def is_ours(name: str) -> bool:
    return _FILE.fullmatch(name) is not None or _MANIFEST.fullmatch(name) is not None


def numbers(names: Iterable[str]) -> list[int]:
    """Of the backups that are there."""
    return sorted(int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name)) is not None)


def manifest_name(number: int) -> str:
    return f"manifest-{number:06d}.json"


def encode(manifest: Manifest) -> bytes:
    has_schedules = any(queue.schedules for queue in manifest.queues)
    written = msgspec.structs.replace(manifest, format=WITH_SCHEDULES if has_schedules else FORMAT)
    body = msgspec.json.format(msgspec.json.encode(written), indent=1)
    return body + _SUM + f"{zlib.crc32(body):08x}\n".encode()


def decode(data: bytes, place: str, *, cure: str = "") -> Manifest:
    """Damaged; StoreError for one of a later version."""
    body, mark, crc = data.rpartition(_SUM)
    if not mark or crc.strip() != f"{zlib.crc32(body):08x}".encode():
        what = f"{place} is damaged: its checksum does not match"
        raise Damaged(f"{what}; {cure}" if cure else what, queue="", key=place)
    format = msgspec.json.decode(body, type=_Peek).format
    if format > WITH_SCHEDULES:
        raise StoreError(f"{place} has format {format}, this Holdfast knows up to {WITH_SCHEDULES}: upgrade Holdfast")
    return msgspec.json.decode(body, type=Manifest)


def check(file: File, data: bytes | None, place: str) -> bytes:
    """The bytes of a file as they were written; Damaged."""
    why = None
    if data is None:
        why = "it is missing"
    elif len(data) != file.bytes or zlib.crc32(data) != file.crc32:
        why = "its checksum does not match"
    if why is not None:
        raise Damaged(f"{place}/{file.name} is damaged ({why}): nothing was restored", queue="", key=file.name)
    assert data is not None
    return data


def parquet(table: Any) -> bytes:
    """A table as a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=_REPETITIVE)
    return bytes(memoryview(sink.getvalue()))


_REPETITIVE = ["status", "content_type", "error", "worker"]  # a dictionary of ids or payloads is of no use


def rows(data: bytes) -> Any:
    """The same back."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)


def count(data: bytes) -> int:
    """How many rows a file has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows)
