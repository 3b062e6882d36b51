"""`bench bars`: every bar for `file://`, `slatedb+file://` and `nats://`, each a ratio of two sides of one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from ...errors import ConfigError
from ..machine import Machine, machine
from ..measure import Result
from ..show import rate
from . import backlog, drain, enqueue, nats, pickup, slate, startup
from .context import QUICK, Bench, Line, Scale

BARS: dict[str, Callable[[Bench], Awaitable[list[Line]]]] = {
    "bulk": enqueue.bulk,
    "drain": drain.against_peer,
    "together": enqueue.together,
    "single": enqueue.single,
    "waiting": backlog.waiting,
    "retries": backlog.retries,
    "pickup": pickup.pickup,
    "overhead": drain.overhead_file,
    "overhead-memory": drain.overhead_memory,
    "full-drain": drain.full_size,
    "slate": slate.slate,
    "nats": nats.nats,
    "import": startup.imports,
    "help": startup.help_text,
}
COLUMNS = ("bar", "ours", "other", "ratio (spread)", "bar", "goal", "result")


class Report(msgspec.Struct, frozen=True):
    """What is saved."""

    machine: Machine
    scale: Scale
    lines: list[Line]


def chosen(only: Sequence[str]) -> list[str]:
    """The names asked for, or all."""
    for name in only:
        if name not in BARS:
            raise ConfigError(f"there is no bar {name!r}; there are {', '.join(BARS)}")
    return list(only) or list(BARS)


async def measure(bench: Bench, names: Sequence[str], done: Callable[[list[Line]], None]) -> Report:
    """One bar after the other; `done` sees each as it comes."""
    lines: list[Line] = []
    for name in names:
        found = await BARS[name](bench)
        lines += found
        done(found)
    return Report(machine(), bench.scale, lines)


def rows(lines: Sequence[Line]) -> list[list[str]]:
    """For the table."""
    return [_row(line) for line in lines]


def _row(line: Line) -> list[str]:
    sign = "≥" if line.better == "more" else "≤"
    return [
        line.name + (f"\n  {line.remark}" if line.remark else ""),
        _side(line.ours, line.unit),
        _side(line.other, line.unit),
        f"{line.ratio:.2f} ({line.low:.2f}–{line.high:.2f})",
        f"{sign} {line.bar:g}" if line.bar is not None else "",
        f"{sign} {line.goal:.2g}" if line.goal is not None else "",
        verdict(line),
    ]


def summary(line: Line) -> str:
    """One line, for those who watch."""
    ours, other = (f"{rate(side.median)} {line.unit}" for side in (line.ours, line.other))
    return f"{line.name}: {ours} / {other} = {line.ratio:.2f} ({line.low:.2f}–{line.high:.2f}) {verdict(line)}"


def verdict(line: Line) -> str:
    """The result, with a mark where the turns disagree: then the machine was too noisy to say."""
    return line.result if line.sure else f"{line.result}?"


def _side(result: Result, unit: str) -> str:
    return f"{result.name}\n{rate(result.median)} {unit}"


def save(report: Report, folder: Path) -> list[Path]:
    """JSON and table, named by the day."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"bars-{report.machine.date[:10]}"
    stem.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    stem.with_suffix(".md").write_text(markdown(report))
    return [stem.with_suffix(".json"), stem.with_suffix(".md")]


def markdown(report: Report) -> str:
    """The table, to be read in a repository."""
    where = report.machine
    body = (" | ".join(cell.replace("\n", "; ") for cell in row) for row in rows(report.lines))
    lines = [
        f"# Bars of {where.date[:10]}",
        "",
        f"Median of {report.scale.repeats} turns; {where.cores} cores, {where.memory_gib:.0f} GiB, {where.system}, "
        f"Python {where.python}, " + ", ".join(f"{name} {version}" for name, version in where.versions.items()) + ".",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
        *(f"| {row} |" for row in body),
    ]
    return "\n".join(lines) + "\n"


__all__ = [
    "BARS",
    "COLUMNS",
    "QUICK",
    "Bench",
    "Line",
    "Report",
    "Scale",
    "chosen",
    "measure",
    "rows",
    "save",
    "summary",
    "verdict",
]
