"""`bench compare`: the same load on Holdfast, its peers and the bare medium, taking turns in one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from . import chart, raw
from .child import Spec
from .machine import Machine, machine
from .measure import Note, Result, Sample
from .opponents import OPPONENTS, Opponent, ask
from .processes import run
from .show import rate

PHASES = ("bulk", "single", "drain")
LABELS = {
    "bulk": "enqueue in bulk",
    "single": "enqueue one by one, each durable before the next",
    "drain": "drain with one process: claim, handle, acknowledge",
}
GROUPS = {
    "message": "each message is acknowledged on its own",
    "cursor": "one reader commits its position in batches; no leases, no retries",
    "none": "no queue: the same bytes on the bare medium",
}


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The same for everybody."""

    count: int = 20_000
    single: int = 2000
    size: int = 1024
    batch: int = 1000
    concurrency: int = 1000  # of our worker: its best setting, as every peer gets its own
    repeats: int = 3


class Round(msgspec.Struct, frozen=True):
    """One turn of one system."""

    bulk: Sample
    single: Sample
    drain: Sample
    version: str = ""
    settings: str = ""


class System(msgspec.Struct, frozen=True):
    """Something that takes part. `kind`: holdfast, peer or raw; `acks`: message, cursor or none."""

    name: str
    kind: str
    acks: str
    turn: Callable[[], Awaitable[Round]]


class Standing(msgspec.Struct, frozen=True):
    """A system after all turns; rates in messages per second."""

    name: str
    kind: str
    acks: str
    settings: str
    bulk: Result
    single: Result
    drain: Result


class Comparison(msgspec.Struct, frozen=True):
    """What is saved."""

    machine: Machine
    load: Load
    standings: list[Standing]


async def compare(load: Load, python: Path, *, folder: Path | None, note: Note) -> Comparison:
    """Every system takes its turn, in the other direction each time."""
    systems = [
        _holdfast(load, folder, archive=True),
        _holdfast(load, folder, archive=False),
        *(_peer(opponent, load, python, folder) for opponent in OPPONENTS),
        _raw(load, folder),
    ]
    rounds: dict[str, list[Round]] = {system.name: [] for system in systems}
    for repeat in range(load.repeats):
        for system in systems if repeat % 2 == 0 else reversed(systems):
            note(f"{system.name} ({repeat + 1}/{load.repeats})")
            rounds[system.name].append(await system.turn())
    versions = {s.name: rounds[s.name][0].version for s in systems if rounds[s.name][0].version}
    return Comparison(machine(versions), load, [_standing(system, rounds[system.name]) for system in systems])


def _holdfast(load: Load, folder: Path | None, *, archive: bool) -> System:
    async def turn() -> Round:
        with raw.scratch(folder) as where:
            spec = Spec(
                url=f"file://{where}", count=load.count, size=load.size, batch=load.batch,
                concurrency=load.concurrency, options={"archive": archive},
            )  # fmt: skip
            reports = [await run(role, spec) for role in ("enqueue", "work")]
            reports.append(await run("single", msgspec.structs.replace(spec, count=load.single)))
        bulk, drain, single = (Sample(report.units, report.seconds) for report in reports)
        settings = f"file://, archive {'on' if archive else 'off'}, worker concurrency {load.concurrency}"
        return Round(bulk, single, drain, settings=settings)

    return System(f"Holdfast, archive {'on' if archive else 'off'}", "holdfast", "message", turn)


def _peer(opponent: Opponent, load: Load, python: Path, folder: Path | None) -> System:
    async def turn() -> Round:
        answer = await ask(opponent, python, folder=folder, count=load.count, single=load.single, size=load.size)
        return Round(
            Sample(load.count, answer.bulk), Sample(load.single, answer.single), Sample(load.count, answer.drain),
            answer.version, answer.settings,
        )  # fmt: skip

    return System(opponent.name, "peer", opponent.acks, turn)


def _raw(load: Load, folder: Path | None) -> System:
    async def turn() -> Round:
        return Round(
            raw.fsynced_blocks(folder, max(1, load.count // load.batch), load.batch * load.size, load.batch),
            raw.sqlite_inserts(folder, load.single, load.size),
            raw.sqlite_deletes(folder, load.count, load.size, load.batch),
            settings="bulk: fsynced 1 MiB files; single: SQLite inserts; drain: SQLite deletes, 1000 a commit",
        )

    return System("bare medium", "raw", "none", turn)


def _standing(system: System, rounds: Sequence[Round]) -> Standing:
    results = (Result.of(system.name, [getattr(turn, phase).rate for turn in rounds]) for phase in PHASES)
    return Standing(system.name, system.kind, system.acks, rounds[0].settings, *results)


# ---------------------------------------------------------------------- what people see


def table(comparison: Comparison) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns and rows: the median, and the spread of the repeats below it."""
    columns = ("system", "acknowledges", "bulk enqueue/s", "single enqueue/s", "drain/s")
    body = [
        [standing.name, standing.acks, *(_cell(getattr(standing, phase)) for phase in PHASES)]
        for standing in comparison.standings
    ]
    return columns, body


def _cell(result: Result) -> str:
    return f"{rate(result.median)} ({rate(result.low)}–{rate(result.high)})"


def picture(comparison: Comparison) -> str:
    """The SVG chart."""
    blocks = [(LABELS[phase], [_stripe(standing, phase) for standing in comparison.standings]) for phase in PHASES]
    load, where = comparison.load, comparison.machine
    footer = (
        f"{load.count:,} messages of {load.size} bytes, every acknowledgement fsynced, median of {load.repeats}; "
        f"{where.cores} cores, {where.memory_gib:.0f} GiB, {where.date[:10]}"
    )
    return chart.draw("Messages per second (logarithmic)", blocks, footer)


def _stripe(standing: Standing, phase: str) -> chart.Stripe:
    result: Result = getattr(standing, phase)
    return chart.Stripe(standing.name, standing.kind, result.median, result.low, result.high)


def markdown(comparison: Comparison) -> str:
    """The same table, to be read in a repository."""
    columns, body = table(comparison)
    load, where = comparison.load, comparison.machine
    lines = [
        f"# Comparison of {where.date[:10]}",
        "",
        f"{load.count:,} messages of {load.size} bytes; median of {load.repeats} turns, spread in brackets; "
        f"{where.cores} cores, {where.memory_gib:.0f} GiB, {where.system}, Python {where.python}.",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in where.versions.items()) + ".",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in body),
        "",
        *(f"- {standing.name}: {standing.settings}" for standing in comparison.standings),
        "",
        *(f"- acknowledges *{name}*: {meaning}" for name, meaning in GROUPS.items()),
    ]
    return "\n".join(lines) + "\n"


def save(comparison: Comparison, folder: Path) -> list[Path]:
    """JSON, table and chart, named by the day."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"compare-{comparison.machine.date[:10]}"
    pretty = msgspec.json.format(msgspec.json.encode(comparison), indent=2)
    files = {".json": pretty, ".md": markdown(comparison).encode(), ".svg": picture(comparison).encode()}
    paths = []
    for suffix, content in files.items():
        paths.append(path := stem.with_suffix(suffix))
        path.write_bytes(content)
    return paths
