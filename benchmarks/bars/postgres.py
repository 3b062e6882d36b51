"""`postgresql://`: in and out beside COPY and peers, after many settled messages, and pick-up."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.bench.measure import Result
from tests.servers.postgres import Server

from ..postgres import __main__ as program
from ..postgres.pickup import pickups
from ..postgres.sides import Figures
from ..postgres.staying import staying
from .context import Bench, Line, limit, line

_PROBE = 20_000  # messages at most whose drain is timed again and again


@contextmanager
def _server() -> Iterator[Server]:
    with Server(settings={"shared_buffers": "256MB", "max_wal_size": "2GB"}) as server:
        yield server


async def drains(bench: Bench) -> list[Line]:
    """Rounds of COPY, of ours and of the peers."""
    with _server() as server:
        given = _arguments(bench)
        report = await asyncio.to_thread(
            program.run, given, server.url(), lambda name: asyncio.run(program.made(server, name))
        )
    return lines_of(report.rounds, f"{bench.scale.postgres:,} × {bench.scale.size} B")


def _arguments(bench: Bench) -> argparse.Namespace:
    s = bench.scale
    asked = [f"--count={s.postgres}", f"--size={s.size}", f"--repeats={s.repeats}", "--settled=0", "--pickups=0"]
    return program.parser().parse_args(asked)


def lines_of(rounds: dict[str, list[Figures]], what: str) -> list[Line]:
    """pgmq is no package: its bars need its script, `python -m benchmarks.postgres --pgmq pgmq.sql`."""
    return [
        line(f"bulk enqueue of {what}, against raw COPY", _side(rounds, "holdfast", "bulk"),
             _side(rounds, "raw COPY", "bulk"), bar=0.35, goal=0.6),
        line(f"bulk enqueue of {what}, against the best peer", _side(rounds, "holdfast", "bulk"),
             _best(rounds, "bulk"), bar=1.2),
        line(f"drain of {what} by a worker, against the best peer", _side(rounds, "holdfast worker", "drain"),
             _best(rounds, "drain"), bar=3.0),
        line(f"drain of {what} in batches, archive on against off", _side(rounds, "holdfast, archive", "drain"),
             _side(rounds, "holdfast", "drain"), bar=None, remark="pgmq is not installed here"),
    ]  # fmt: skip


def _side(rounds: dict[str, list[Figures]], name: str, figure: str) -> Result:
    return Result.of(name, [getattr(one, figure) for one in rounds[name]])


def _best(rounds: dict[str, list[Figures]], figure: str) -> Result:
    peers = [_side(rounds, name, figure) for name in program.PEERS]
    return max(peers, key=lambda peer: peer.median)


async def stays(bench: Bench) -> list[Line]:
    """The drain of a queue that has seen many messages, and while a transaction pins xmin."""
    s = bench.scale
    with _server() as server:
        found = await staying(
            server.url(), settled=s.settled, size=s.size, probe=min(s.postgres, _PROBE), rounds=s.repeats
        )
    fresh, then = Result.of("a new queue", found.fresh), Result.of("a new queue", found.fresh_then)
    return [
        line(f"drain after {found.settled:,} settled, against a new queue", Result.of("used queue", found.after),
             fresh, bar=0.8, goal=1.0),
        line(f"drain with xmin pinned and {found.litter:,} finished since, against a new queue",
             Result.of("pinned", found.pinned), then, bar=0.5, goal=1.0),
    ]  # fmt: skip


async def picks_up(bench: Bench) -> list[Line]:
    """From enqueue to the start of the handler in an idle worker of another process."""
    with _server() as server:
        both = await asyncio.to_thread(pickups, server.url(), count=bench.scale.picked_up)
    bare = f"bare LISTEN/NOTIFY: p50 {both.bare.p50:.2f} ms, p99 {both.bare.p99:.2f} ms"
    return [
        limit("pick-up p50", Result.of("p50", both.ours.rounds), 3.0, goal=1.5, unit="ms", remark=bare),
        limit("pick-up p99", Result.of("p99", [both.ours.p99]), 10.0, goal=None, unit="ms"),
    ]
