"""What every peer program has in common. It runs without Holdfast: the standard library only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Protocol

BATCH_MESSAGES = 1000  # of a bulk call, as ours


class Peer(Protocol):
    """One way to use a peer; every method is durable when it returns."""

    settings: str  # what was chosen, for the table

    def put_many(self, bodies: Sequence[str]) -> None:
        """Enqueue in bulk, the best way the peer has."""

    def put(self, body: str) -> None:
        """Enqueue one."""

    def drain(self, count: int, handler: Callable[[str], None]) -> None:
        """Take, handle and acknowledge so many."""


def main(package: str, ways: dict[str, Callable[[str], Peer]]) -> None:
    """Read one JSON object (way, folder, count, single, size) from the arguments, print one."""
    spec = json.loads(sys.argv[1])
    peer = ways[spec["way"]](spec["folder"])
    bodies = [(f"{number:08x}" * (spec["size"] // 8 + 1))[: spec["size"]] for number in range(spec["count"])]
    answer = {
        "version": metadata.version(package),
        "settings": peer.settings,
        "bulk": _timed(lambda: peer.put_many(bodies)),
        "drain": _drained(peer, spec["count"]),
        "single": _timed(lambda: _put_each(peer, bodies[: spec["single"]])),
    }
    sys.stdout.write(json.dumps(answer) + "\n")


def _put_each(peer: Peer, bodies: Sequence[str]) -> None:
    for body in bodies:
        peer.put(body)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _drained(peer: Peer, count: int) -> float:
    handled: list[int] = []
    seconds = _timed(lambda: peer.drain(count, lambda body: handled.append(len(body))))
    if len(handled) != count:
        raise SystemExit(f"{count} messages in, {len(handled)} handled")
    return seconds
