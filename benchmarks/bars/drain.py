"""Drain: a worker against the best peer, and against bare calls of the queue."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.bench import load
from holdfast.bench.measure import Sample, Side, alternate
from holdfast.bench.opponents import OPPONENTS, Opponent, ask

from .context import Bench, Line, line
from .enqueue import on_fresh_folder

_PROBE = 5000  # messages, to find out which peer is the best; one of them takes longer the more it has done


async def against_peer(bench: Bench) -> list[Line]:
    """One worker process, trivial async handler, every completion durable, against the best peer on SQLite."""
    s, python = bench.scale, bench.peers_python()
    best = await _best(bench)

    def worker(archive: bool) -> Side:
        async def turn() -> Sample:
            report = await on_fresh_folder(
                bench.folder, "work", before="enqueue", count=s.drain, batch=s.batch, size=s.size,
                concurrency=s.concurrency, options={"archive": archive},
            )  # fmt: skip
            return Sample(report.units, report.seconds)

        return Side(f"worker, archive {'on' if archive else 'off'}", turn)

    async def peer() -> Sample:
        answer = await ask(best, python, folder=bench.folder, count=s.drain, single=0, size=s.size)
        return Sample(s.drain, answer.drain)

    sides = [worker(False), worker(True), Side(best.name, peer)]
    off, on, other = await alternate(sides, s.repeats, bench.note)
    remark = f"{s.drain:,} messages each; concurrency {s.concurrency}"
    return [
        line("drain, archive off, against the best SQLite peer", off, other, bar=20, goal=40, remark=remark),
        line("drain, archive on, against the best SQLite peer", on, other, bar=10, goal=40, remark=remark),
    ]


async def _best(bench: Bench) -> Opponent:
    """The fastest at draining, of those that acknowledge each message on its own."""
    seconds: dict[str, float] = {}
    candidates = {opponent.name: opponent for opponent in OPPONENTS if opponent.acks == "message"}
    for name, opponent in candidates.items():
        bench.note(f"probing {name}")
        answer = await ask(
            opponent,
            bench.peers_python(),
            folder=bench.folder,
            count=_PROBE,
            single=0,
            size=bench.scale.size,
            timeout=120,
        )
        seconds[name] = answer.drain
    return candidates[min(seconds, key=lambda name: seconds[name])]


async def full_size(bench: Bench) -> list[Line]:
    """The drain of the whole load against that of a small one: a rate that holds."""
    s = bench.scale

    def worker(count: int) -> Side:
        async def turn() -> Sample:
            report = await on_fresh_folder(
                bench.folder, "work", before="enqueue", count=count, batch=s.batch, size=s.size,
                concurrency=s.concurrency,
            )  # fmt: skip
            return Sample(report.units, report.seconds)

        return Side(f"{count:,} messages", turn)

    big, small = await alternate([worker(s.classic), worker(s.drain)], min(3, s.repeats), bench.note)
    return [line(f"drain of {s.classic:,} against {s.drain:,}, archive on", big, small, bar=None, goal=0.9)]


async def overhead_file(bench: Bench) -> list[Line]:
    """`Worker` with a no-op handler against bare dequeue_many/complete_many of 100, on file://."""
    s = bench.scale

    def side(role: str, name: str) -> Side:
        async def turn() -> Sample:
            report = await on_fresh_folder(
                bench.folder, role, before="enqueue", count=s.overhead, batch=100, size=s.size
            )
            return Sample(report.units, report.seconds)

        return Side(name, turn)

    mine, bare = await alternate([side("work", "Worker"), side("bare", "bare calls")], s.repeats, bench.note)
    return [line("worker overhead on file://, batch 100", mine, bare, bar=0.5, goal=0.8)]


async def overhead_memory(bench: Bench) -> list[Line]:
    """The same on memory://, where the store costs least and the worker shows most."""
    s = bench.scale

    async def filled(broker: holdfast.Broker) -> holdfast.Queue[Any]:
        queue: holdfast.Queue[Any] = await broker.queue("bench")
        await load.enqueue_batches(queue, s.overhead, s.batch, s.size)
        return queue

    async def worker() -> Sample:
        async with holdfast.connect("memory://") as broker:
            return (await load.work(await filled(broker), s.overhead, 100)).sample

    async def bare() -> Sample:
        async with holdfast.connect("memory://") as broker:
            return (await load.take_batches(await filled(broker), s.overhead, 100)).sample

    mine, other = await alternate([Side("Worker", worker), Side("bare calls", bare)], s.repeats, bench.note)
    return [line("worker overhead on memory://, batch 100", mine, other, bar=0.5, goal=0.8)]
