"""Traces of what ended and is not kept, for an hour: those of messages that were enqueued together share a message."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ...v1.task_pb2 import Record
from .deadline import holding
from .faults import Nobody
from .fence import Fence
from .link import Link
from .reading import Found, Reader
from .wire import Post

_PLACE = 5  # digits at the end of an id that count the messages of one call
_SHARED_BITS = 6  # so many of these ids share a message: 64
_REMEMBERED = 256  # blocks that this process has written, with their places
_decode = msgspec.json.Decoder(dict[str, str]).decode


class _Block(NamedTuple):
    """The traces of neighbouring ids, by the ends of those."""

    sequence: int
    lines: dict[str, str]


_NONE = _Block(0, {})


class Traces:
    """Those of one queue."""

    def __init__(self, link: Link, reader: Reader, fence: Fence, stream: str, subject: str) -> None:
        self._link = link
        self._reader = reader
        self._fence = fence
        self._stream = stream
        self._subject = subject
        self._known: dict[str, _Block] = {}
        self._lock = asyncio.Lock()  # two of this process would only refuse each other

    async def leave(self, ended: Sequence[tuple[str, str, Record]]) -> None:
        """That these ended: id, token and record, which messages may share. Its own token is that of one of them."""
        left: dict[str, dict[str, str]] = {}
        for id, token, record in ended:
            line = f"{token or record.last_token} {record.last_action} {record.finished_at!r}"
            left.setdefault(_block(id), {})[id[-_PLACE:]] = line
        async with holding(self._lock, self._link.options.operation_timeout):
            while left:
                left = await self._write(left)

    async def _write(self, blocks: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        """Add to these blocks; those that another has written since we looked."""
        merged = {name: {**self._known.get(name, _NONE).lines, **lines} for name, lines in blocks.items()}
        posts = [
            Post(self._subject + name, msgspec.json.encode(lines), "", self._known.get(name, _NONE).sequence)
            for name, lines in merged.items()
        ]
        sequences, _ = await self._fence.write(posts)
        refused: dict[str, dict[str, str]] = {}
        for name, sequence in zip(merged, sequences, strict=True):
            if sequence is None:
                refused[name] = blocks[name]
                found = await self._reader.last_exact(self._stream, self._subject + name)
                self._remember(name, _NONE if found is None else _Block(found.sequence, _decode(found.data)))
            else:
                self._remember(name, _Block(sequence, merged[name]))
        return refused

    def _remember(self, name: str, block: _Block) -> None:
        self._known.pop(name, None)
        self._known[name] = block
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    # ------------------------------------------------------------------ reading

    async def ends(self, ids: Sequence[str]) -> dict[str, float]:
        """When these ended, as long as that is remembered; NaN: an earlier version did not say."""
        start = len(self._subject)
        subjects = [*ids, *dict.fromkeys(_block(id) for id in ids)]
        try:
            found = await self._reader.last(self._stream, [self._subject + one for one in subjects])
        except Nobody:
            return {}
        there = {subject[start:]: one for subject, one in found.items()}
        lines = {id: line for id in ids if (line := _line(id, there.get(id), there.get(_block(id)))) is not None}
        words = {id: line.split(" ") for id, line in lines.items()}
        return {id: float(said[2]) if len(said) > 2 else math.nan for id, said in words.items()}

    async def line(self, id: str) -> str | None:
        """Token, action and instant of the end of one, from the leader."""
        own = await self._reader.last_exact(self._stream, self._subject + id)
        return _line(id, own, await self._reader.last_exact(self._stream, self._subject + _block(id)))


def _block(id: str) -> str:
    return f"{id[:-_PLACE]}_{int(id[-_PLACE:], 16) >> _SHARED_BITS:x}"


def _line(id: str, own: Found | None, block: Found | None) -> str | None:
    """A message of its own is what earlier versions left."""
    if own is not None:
        return own.data.decode()
    return None if block is None else _decode(block.data).get(id[-_PLACE:])
