"""Celery on a folder beside Celery on Redis: `delay()`, and a worker whose tasks do nothing."""

from __future__ import annotations

import asyncio

from holdfast.bench.measure import Result

from ..celery import __main__ as program
from .context import Bench, Line, line


async def beside_redis(bench: Bench) -> list[Line]:
    """No bar: the ratios are stated."""
    arguments = [f"--count={bench.scale.celery}", f"--repeats={bench.scale.repeats}"]
    if bench.folder is not None:
        arguments.append(f"--folder={bench.folder}")
    given = program.parser().parse_args(arguments)
    python = await asyncio.to_thread(program.peers, given)
    found = await asyncio.to_thread(program.rounds, given, python)
    names = {"delay": "Celery's delay()", "worker": "a worker of Celery, 2 processes, tasks do nothing"}

    def side(name: str, what: str) -> Result:
        return Result.of(name, [getattr(one, what) for one in found[name]])

    return [
        line(f"{text}, against {name}", side(program.OURS, what), side(name, what), bar=None, unit="tasks/s",
             remark="stated")
        for name in (program.SYNCED, program.PLAIN)
        for what, text in names.items()
    ]  # fmt: skip
