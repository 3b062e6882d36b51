"""Children seen from the parent: started, told to go together, heard, and gone in the end whatever happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from ..errors import HoldfastError
from .child import Report, Spec

_START_S = 60.0  # for a child to open its store
Progress = Callable[[int], None]


class Child:
    """One other process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.done = 0

    async def hear(self, timeout: float) -> Report:
        """The next line that is not progress."""
        async with asyncio.timeout(timeout):
            while True:
                report = await self.next()
                if report.kind != "progress":
                    return report

    async def next(self) -> Report:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = await self._process.stdout.readline()
        if not line:
            why = (await self._process.stderr.read()).decode(errors="replace").strip()
            raise HoldfastError(f"a process of the benchmark has ended: {why[-2000:]}")
        report = msgspec.json.decode(line, type=Report)
        self.done = report.done or self.done
        return report

    def tell(self, line: str = "go") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def children(role: str, specs: Sequence[Spec]) -> AsyncIterator[list[Child]]:
    """As many processes as there are specs, all ready to go."""
    started: list[Child] = []
    try:
        for spec in specs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holdfast.bench.child", role, msgspec.json.encode(spec).decode(),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                limit=sys.maxsize,  # a result carries the time of every call
            )  # fmt: skip
            started.append(Child(process))
        for child in started:
            await child.hear(_START_S)
        yield started
    finally:
        for child in started:
            await child.end()


async def run(role: str, spec: Spec, *, progress: Progress | None = None) -> Report:
    """One child from start to end."""
    (report,) = await run_all(role, [spec], progress=progress)
    return report


async def run_all(role: str, specs: Sequence[Spec], *, progress: Progress | None = None) -> list[Report]:
    """Children that go together, each until its own part is done."""
    async with children(role, specs) as group:
        for child in group:
            child.tell()
        reports = [asyncio.ensure_future(_result(child, group, progress)) for child in group]
        return await asyncio.gather(*reports)


async def drain(
    specs: Sequence[Spec], total: int, *, progress: Progress | None = None, role: str = "drain"
) -> list[Report]:
    """Workers that share a queue, told to stop when together they have handled `total`."""
    async with children(role, specs) as group:
        for child in group:
            child.tell()
        reports = [asyncio.ensure_future(_result(child, group, progress)) for child in group]
        while sum(child.done for child in group) < total:
            await asyncio.sleep(0.02)
            for report in reports:
                if report.done():
                    report.result()  # a child that ended by itself has failed: say why
        for child in group:
            child.tell("stop")
        return await asyncio.gather(*reports)


async def _result(child: Child, group: Sequence[Child], progress: Progress | None) -> Report:
    while (report := await child.next()).kind != "result":
        if progress is not None:
            progress(sum(other.done for other in group))
    return report
