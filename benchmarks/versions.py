"""`enqueue_many` and drain of this version against those of another, in turns: what a change costs.

python -m benchmarks.versions SRC [file|s3]     SRC: the folder src of a checkout of the other version
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.bench import raw
from holdfast.bench.child import Spec
from holdfast.bench.measure import Sample, Side, alternate
from holdfast.bench.processes import run
from tests.servers.s3 import Server

from .bars.context import line

HERE = Path(__file__).parents[1] / "src"
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


def _side(name: str, source: Path, part: Callable[[str], Awaitable[Sample]], fresh: Callable[[], object]) -> Side:
    async def turn() -> Sample:
        os.environ["PYTHONPATH"] = str(source)  # of the child
        with fresh() as url:  # type: ignore[attr-defined]  # a context manager, as a callable that mypy cannot follow
            return await part(url)

    return Side(name, turn)


async def main(other: Path, store: str) -> None:
    """Both sides of each ratio, with the spread of the turns."""
    enqueued, drained = _SIZES[store]

    async def enqueue(url: str) -> Sample:
        report = await run("enqueue", Spec(url=url, count=enqueued, size=_BODY_BYTES))
        return Sample(report.units, report.seconds)

    async def drain(url: str) -> Sample:
        spec = Spec(url=url, count=drained, size=_BODY_BYTES, concurrency=1000)
        await run("enqueue", spec)
        report = await run("work", spec)
        return Sample(report.units, report.seconds)

    server = Server().__enter__() if store == "s3" else None
    try:
        for what, part in ((f"enqueue_many of 1000, {enqueued:,}", enqueue), (f"drain of {drained:,}", drain)):
            sides = [_side(name, source, part, lambda: _fresh(store, server)) for name, source in
                     (("this", HERE), ("the other", other))]  # fmt: skip
            ours, theirs = await alternate(sides, _TURNS)
            found = line(f"{store}: {what}", ours, theirs, bar=_BAR)
            sys.stdout.write(
                f"{found.name}: {ours.median:,.0f} / {theirs.median:,.0f} = {found.ratio:.3f} "
                f"({found.low:.2f} to {found.high:.2f}), {found.result}\n"
            )
            sys.stdout.flush()
    finally:
        if server is not None:
            server.__exit__(None, None, None)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), *(sys.argv[2:] or ["file"])))
