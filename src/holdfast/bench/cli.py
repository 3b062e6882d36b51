"""`holdfast bench …`: thin commands over the programs of this package."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import HoldfastError
from ..escaping import one_line

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measure rates and latencies, always compared with something."
)

Url = Annotated[str | None, typer.Option(help="The store to measure; else as configured, else a temporary folder.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens; show tracebacks.")]
Count = Annotated[int, typer.Option(min=1, help="Messages.")]
Size = Annotated[int, typer.Option(min=0, help="Bytes of each.")]
Folder = Annotated[Path | None, typer.Option(help="A folder on the disk to measure; the temporary one by default.")]
Output = Annotated[Path | None, typer.Option(help="Where results are saved; - in a checkout - benchmarks/results.")]
Pinned = Annotated[Path | None, typer.Option(help="Pinned requirements of the peers.")]


def _numbers(text: str) -> list[int]:
    """1000,100000 → two numbers."""
    try:
        numbers = [int(part) for part in text.replace("_", "").split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers")
    if any(number < 1 for number in numbers):
        raise typer.BadParameter(f"{text!r}: every number must be at least 1")
    return numbers


def _run(program: Any, *, verbose: bool) -> Any:
    logger = logging.getLogger("holdfast")
    level = logger.level
    if verbose:
        logging.basicConfig(level=logging.DEBUG)
    else:  # failing messages are part of some loads
        logger.setLevel(logging.ERROR)
    try:
        return asyncio.run(program)
    except HoldfastError as error:
        if verbose:
            raise
        typer.echo(one_line(f"holdfast: {error}"), err=True)
        raise typer.Exit(1) from error
    finally:
        logger.setLevel(level)


def _results(output: Path | None) -> Path | None:
    """Saved where asked, or in a checkout; nowhere else without being asked."""
    default = Path("benchmarks") / "results"
    return output or (default if default.is_dir() else None)


@app.command()
def queue(
    url: Url = None,
    count: Count = 100_000,
    size: Size = 1024,
    batch: Annotated[int, typer.Option(min=1, help="Messages of one enqueue_many.")] = 1000,
    concurrency: Annotated[int, typer.Option(min=1, help="Callers at once, and handlers of a worker.")] = 100,
    processes: Annotated[str, typer.Option(help="Processes; several numbers (1,4,16) give a curve.")] = "1",
    sizes: Annotated[str | None, typer.Option(help="A curve over sizes: 64,1024,1048576.")] = None,
    waiting: Annotated[str | None, typer.Option(help="A curve over backlogs: 1000,100000,1000000.")] = None,
    archive: Annotated[bool, typer.Option(help="Keep completed messages, as queues do by default.")] = True,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Enqueue and drain; the classic load is --count 1000000 --size 1024."""
    from . import queue as program
    from .show import as_json, as_table, progress

    many = _numbers(processes)

    async def measured() -> dict[str, list[program.Point]]:
        async with program.somewhere(url) as where:
            await program.reachable(where, at_once=max(many))
            base = program.Load(
                url=where, count=count, size=size, batch=batch, concurrency=concurrency, processes=many[0],
                archive=archive,
            )  # fmt: skip
            with progress("queue", program.steps(base), quiet=json) as bar:
                if sizes:
                    return {"bytes a message": await program.curve(base, "size", _numbers(sizes), bar)}
                if waiting:
                    return {"waiting": await program.waiting(base, _numbers(waiting), bar)}
                return {"processes": await program.curve(base, "processes", many, bar)}

    found: dict[str, list[program.Point]] = _run(measured(), verbose=verbose)
    if json:
        as_json(found)
        return
    for what, points in found.items():
        for point in points:
            memory = "" if point.memory is None else f", {point.memory / 2**20:.0f} MiB resident"
            as_table(f"{what}: {point.at:,}{memory}", program.COLUMNS, program.rows(point.phases))


@app.command()
def store(
    url: Url = None,
    count: Annotated[int, typer.Option(min=1, help="Objects put in batches.")] = 10_000,
    value_size: Annotated[int, typer.Option(min=0, help="Bytes of each.")] = 1024,
    batch_size: Annotated[int, typer.Option(min=1, help="Objects of one batch.")] = 100,
    test_get: Annotated[int, typer.Option(min=1, help="Random gets.")] = 1000,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """The space underneath alone: put, batch put, get, ranged and full scan."""
    from . import queue as places
    from . import store as program
    from .show import as_json, as_table, progress

    load = program.Load(count=count, value_size=value_size, batch_size=batch_size, test_get=test_get)

    async def measured() -> list[program.Operation]:
        async with places.somewhere(url) as where:
            store = await program.open_log(where)
            try:
                with progress("store", 2000 + count, quiet=json) as bar:
                    return await program.measure(store, load, bar)
            finally:
                await store.close()

    found: list[program.Operation] = _run(measured(), verbose=verbose)
    if json:
        as_json(found)
    else:
        as_table("store", program.COLUMNS, program.rows(found))


@app.command()
def latency(
    url: Url = None,
    count: Count = 500,
    rate: Annotated[float, typer.Option(min=0.1, help="Messages per second.")] = 50.0,
    idle: Annotated[float, typer.Option(min=0.1, help="Seconds the worker is idle first.")] = 5.0,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """From enqueue to the start of the handler in an idle worker of another process."""
    from . import latency as program
    from . import queue as places
    from .show import as_json, as_table, milliseconds, progress

    async def measured() -> program.PickUp:
        async with places.somewhere(url) as where:
            await places.reachable(where, at_once=2)
            with progress("latency", count, quiet=json) as bar:
                return await program.measure(where, count=count, rate=rate, idle=idle, bar=bar)

    found: program.PickUp = _run(measured(), verbose=verbose)
    if json:
        as_json(found)
        return
    times = found.pick_up
    cells = [milliseconds(t) for t in (times.p50, times.p95, times.p99, times.max)] if times else [""] * 4
    columns = ("messages", "rate/s", "p50 ms", "p95 ms", "p99 ms", "max ms", "idle CPU %")
    as_table("pick-up", columns, [[f"{found.messages:,}", f"{rate:g}", *cells, f"{found.idle_cpu * 100:.2f}"]])


@app.command()
def compare(
    count: Count = 20_000,
    size: Size = 1024,
    single: Annotated[int, typer.Option(min=1, help="Single awaited calls.")] = 2000,
    concurrency: Annotated[int, typer.Option(min=1, help="Handlers of the worker.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each system.")] = 3,
    folder: Folder = None,
    output: Output = None,
    requirements: Pinned = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Holdfast, its peers on SQLite and the bare medium, side by side; a table and a chart."""
    from . import compare as program
    from .environment import peers_python
    from .environment import requirements as pinned
    from .show import as_json, as_table, progress

    load = program.Load(count=count, size=size, single=single, concurrency=concurrency, repeats=repeats)

    async def measured() -> program.Comparison:
        with progress("compare", 7 * repeats, quiet=json) as bar:

            def note(text: str) -> None:
                bar.note(text)
                bar.add(1)

            bar.note("the peers' environment")
            python = peers_python(pinned(requirements))
            return await program.compare(load, python, folder=folder, note=note)

    found: program.Comparison = _run(measured(), verbose=verbose)
    if json:
        as_json(found)
    else:
        as_table("messages per second: median (spread)", *program.table(found))
    if (where := _results(output)) is not None:
        _saved(program.save(found, where))


def _saved(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(f"saved {path}", err=True)
