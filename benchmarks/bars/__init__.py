"""Every bar of every store, each a ratio of two sides of one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.bench.machine import Machine, machine
from holdfast.bench.measure import Result
from holdfast.bench.show import rate
from holdfast.errors import ConfigError

from . import (
    backlog,
    blocking,
    celery,
    drain,
    enqueue,
    http,
    listing,
    nats,
    page,
    pickup,
    postgres,
    queues,
    s3,
    slate,
    spark,
    startup,
)
from .context import QUICK, Bench, Line, Scale


class Bar(NamedTuple):
    """How a bar, or a few of one run, are measured."""

    store: str
    program: Callable[[Bench], Awaitable[list[Line]]]


BARS = {
    "bulk": Bar("file", enqueue.bulk),
    "drain": Bar("file", drain.against_peer),
    "together": Bar("file", enqueue.together),
    "single": Bar("file", enqueue.single),
    "sync": Bar("file", blocking.blocking),
    "queues": Bar("file", queues.many_queues),
    "waiting": Bar("file", backlog.waiting),
    "retries": Bar("file", backlog.retries),
    "list": Bar("file", listing.on_file),
    "pickup": Bar("file", pickup.pickup),
    "overhead": Bar("file", drain.overhead_file),
    "overhead-memory": Bar("memory", drain.overhead_memory),
    "full-drain": Bar("file", drain.full_size),
    "http": Bar("file", http.on_file),
    "page": Bar("file", page.on_file),
    "celery": Bar("file", celery.beside_redis),
    "slate": Bar("slatedb", slate.slate),
    "postgres-drain": Bar("postgres", postgres.drains),
    "postgres-staying": Bar("postgres", postgres.stays),
    "postgres-pickup": Bar("postgres", postgres.picks_up),
    "postgres-list": Bar("postgres", listing.on_postgres),
    "postgres-http": Bar("postgres", http.on_postgres),
    "postgres-page": Bar("postgres", page.on_postgres),
    "nats-drain": Bar("nats", nats.main_path),
    "nats-other": Bar("nats", nats.off_the_main_path),
    "s3-requests": Bar("s3", s3.requests),
    "s3-list": Bar("s3", listing.on_bucket),
    "s3-throughput": Bar("s3", s3.far_away),
    "s3-producers": Bar("s3", http.producers),
    "s3-idle": Bar("s3", s3.idle),
    "spark": Bar("spark", spark.spark),
    "import": Bar("start-up", startup.imports),
    "help": Bar("start-up", startup.help_text),
}
COLUMNS = ("store", "bar", "ours", "other", "ratio (spread)", "bar", "goal", "result")


class Report(msgspec.Struct, frozen=True):
    """What is saved."""

    machine: Machine
    scale: Scale
    lines: list[Line]


def chosen(only: Sequence[str]) -> list[str]:
    """The bars asked for, by their names or by their stores; or all."""
    stores = dict.fromkeys(bar.store for bar in BARS.values())
    for name in only:
        if name not in BARS and name not in stores:
            raise ConfigError(f"there is no bar {name!r}; there are {', '.join([*stores, *BARS])}")
    return [name for name, bar in BARS.items() if not only or name in only or bar.store in only]


async def measure(bench: Bench, names: Sequence[str], done: Callable[[list[Line]], None]) -> Report:
    """One bar after the other; `done` sees each as it comes."""
    lines: list[Line] = []
    for name in names:
        bar = BARS[name]
        found = [msgspec.structs.replace(line, store=bar.store) for line in await bar.program(bench)]
        lines += found
        done(found)
    return Report(machine(), bench.scale, lines)


def rows(lines: Sequence[Line]) -> list[list[str]]:
    """For the table."""
    return [_row(line) for line in lines]


def _row(line: Line) -> list[str]:
    sign = "≥" if line.better == "more" else "≤"
    return [
        line.store,
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
    "markdown",
    "measure",
    "rows",
    "summary",
    "verdict",
]
