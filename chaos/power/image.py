"""What a disk holds after a power cut: all that was synced, and of the rest whatever happened to reach it."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from .trace import Acknowledged, Named, Synced, Trace, Truncated, Wrote

_SECTOR = 512


class _Node:
    """A file or a directory: what is on the medium for certain, and what may be."""

    def __init__(self, *, is_directory: bool = False) -> None:
        self.is_directory = is_directory
        self.sure = bytearray()
        self.pending: list[tuple[int, Wrote | Truncated]] = []

    def sync(self, begun: int) -> None:
        late = []
        for number, change in self.pending:
            if number < begun:
                _apply(self.sure, change)
            else:
                late.append((number, change))
        self.pending = late

    def guess(self, random: Random) -> bytes:
        """The sure bytes, and some of the others: each written, not written, or only in its first sectors."""
        data = bytearray(self.sure)
        for _, change in self.pending:
            luck = random.random()
            if luck < 0.4:
                _apply(data, change)
            elif luck < 0.6 and isinstance(change, Wrote):
                sectors = random.randrange(len(change.data) // _SECTOR + 1)
                _apply(data, Wrote(change.path, change.offset, change.data[: sectors * _SECTOR]))
        return bytes(data)


class Disk:
    """The medium below a folder while a trace is played; `cut` shows what is left."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._played = 0
        self._nodes: dict[str, _Node] = {trace.folder: _Node()}  # by their name as the program sees it
        self._names: dict[str, _Node] = {}  # as they are on the medium for certain
        self._moves: list[tuple[int, Named, _Node]] = []  # not certain yet
        self.acknowledged: list[Acknowledged] = []

    def play(self, until: int) -> None:
        for number in range(self._played, until):
            event = self._trace.events[number]
            match event:
                case Wrote() | Truncated():
                    self._nodes.setdefault(event.path, _Node()).pending.append((number, event))
                case Named():
                    self._move(number, event)
                case Synced():
                    self._sync(event)
                case Acknowledged():
                    self.acknowledged.append(event)
        self._played = until

    def _move(self, number: int, event: Named) -> None:
        node = self._nodes.pop(event.old, None) if event.old else None
        node = node or _Node(is_directory=event.is_directory)
        if event.new:
            self._nodes[event.new] = node
        self._moves.append((number, event, node))

    def _sync(self, event: Synced) -> None:
        if event.is_directory:
            late = []
            for number, move, node in self._moves:
                if number < event.begun and event.path in (os.path.dirname(move.old), os.path.dirname(move.new)):
                    _rename(self._names, move, node)
                else:
                    late.append((number, move, node))
            self._moves = late
        elif event.path in self._nodes:
            self._nodes[event.path].sync(event.begun)

    def cut(self, folder: Path, random: Random) -> int:
        """Make what is left; how many writes and names were in doubt."""
        names = dict(self._names)
        for _, move, node in self._moves:
            if random.random() < 0.5:
                _rename(names, move, node)
        for path, node in sorted(names.items()):
            place = folder / os.path.relpath(path, self._trace.folder)
            if node.is_directory:
                place.mkdir(parents=True, exist_ok=True)
            elif place.parent.is_dir():  # a name in a directory that was lost is lost with it
                place.write_bytes(node.guess(random))
        return len(self._moves) + sum(len(node.pending) for node in self._nodes.values())


def _apply(data: bytearray, change: Wrote | Truncated) -> None:
    if isinstance(change, Truncated):
        del data[change.size :]
        return
    if len(data) < change.offset:
        data.extend(bytes(change.offset - len(data)))
    data[change.offset : change.offset + len(change.data)] = change.data


def _rename(names: dict[str, _Node], move: Named, node: _Node) -> None:
    if move.old:
        names.pop(move.old, None)
    if move.new:
        names[move.new] = node
