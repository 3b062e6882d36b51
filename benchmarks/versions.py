"""`enqueue_many` and drain of this version against those of another, in turns: what a change costs.

By the clock, and by the processor's time of the process, which a busy machine disturbs less.

python -m benchmarks.versions PATH [file|s3]     PATH: the PYTHONPATH of the other version, mostly src of a checkout
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.bench import raw
from holdfast.bench.child import Report, Spec
from holdfast.bench.measure import Result, Sample, Side, alternate
from holdfast.bench.processes import run
from tests.servers.s3 import Server

from .bars.context import line

HERE = str(Path(__file__).parents[1] / "src")
_TURNS = 7  # an odd number, for a median
_BODY_BYTES = 200  # as in the other bars
_SIZES = {"file": (500_000, 100_000), "s3": (200_000, 50_000)}  # messages that are enqueued, and drained
_BAR = 0.95  # of the version before checksums


@contextmanager
def _fresh(store: str, server: Server | None) -> Iterator[str]:
    if server is not None:
        yield server.url(uuid.uuid4().hex)
    else:
        with raw.scratch(None) as folder:
            yield f"{store}://{folder}"


def _side(
    name: str,
    source: str,
    part: Callable[[str], Awaitable[Report]],
    fresh: Callable[[], object],
    costs: list[float],
    before: Callable[[str], Awaitable[Report]] | None,
) -> Side:
    async def turn() -> Sample:
        os.environ["PYTHONPATH"] = source  # of the child
        with fresh() as url:  # type: ignore[attr-defined]  # a context manager, as a callable that mypy cannot follow
            start = (await _timed(run("enqueue", Spec(url=url, queue="start", count=1000, size=_BODY_BYTES))))[1]
            if before is not None:
                await before(url)
            report, used = await _timed(part(url))
        costs.append(report.units / max(used - start, 0.01))
        return Sample(report.units, report.seconds)

    return Side(name, turn)


async def _timed(running: Awaitable[Report]) -> tuple[Report, float]:
    """With the processor's time of the child, start and imports included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = await running
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return report, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def main(other: str, store: str) -> None:
    """Both sides of each ratio, with the spread of the turns."""
    enqueued, drained = _SIZES[store]

    async def enqueue(url: str) -> Report:
        return await run("enqueue", Spec(url=url, count=enqueued, size=_BODY_BYTES))

    async def fill(url: str) -> Report:
        return await run("enqueue", Spec(url=url, count=drained, size=_BODY_BYTES))

    async def drain(url: str) -> Report:
        return await run("work", Spec(url=url, count=drained, size=_BODY_BYTES, concurrency=1000))

    server = Server().__enter__() if store == "s3" else None
    try:
        for what, part, before in (
            (f"enqueue_many of 1000, {enqueued:,}", enqueue, None),
            (f"drain of {drained:,}", drain, fill),
        ):
            costs: tuple[list[float], list[float]] = ([], [])
            sides = [
                _side(source, source, part, lambda: _fresh(store, server), each, before)
                for source, each in zip((HERE, other), costs, strict=True)
            ]
            by_clock = await alternate(sides, _TURNS)
            _say(f"{store}: {what}, by the clock", *by_clock)
            _say(f"{store}: {what}, by the processor", *(Result.of("", each) for each in costs))
    finally:
        if server is not None:
            server.__exit__(None, None, None)


def _say(name: str, ours: Result, theirs: Result) -> None:
    found = line(name, ours, theirs, bar=_BAR)
    sys.stdout.write(
        f"{name}: {ours.median:,.0f} / {theirs.median:,.0f} = {found.ratio:.3f} "
        f"({found.low:.2f} to {found.high:.2f}), {found.result}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *(sys.argv[2:] or ["file"])))
