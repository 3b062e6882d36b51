"""`python -m chaos RUN [options]`: exit 0 when the run is valid, 1 when it is not."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec

from .runs import RUNS, Run
from .settings import Settings
from .simulation.policies import POLICIES
from .verdict import Verdict, lines

_NUMBERS = (
    "messages",
    "producers",
    "workers",
    "kills",
    "producer_kills",
    "stops",
    "concurrency",
    "seed",
    "shards",
    "queues",
)
_SIMULATED = ("seeds",)
_SECONDS = ("interval", "lease", "work", "deadline", "seconds")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    names = ", ".join(f"{run.name} ({run.id})" if run.id else run.name for run in RUNS)
    made.add_argument("run", nargs="?", default="all", help=f"{names}, or all")
    for name in (*_NUMBERS, *_SIMULATED):
        made.add_argument(f"--{name.replace('_', '-')}", type=int)
    for name in _SECONDS:
        made.add_argument(f"--{name}", type=float)
    made.add_argument(
        "--store", choices=("file", "s3", "postgres", "nats", "slatedb", "azure", "http", "all"),
        help="of history, restore, frozen (also http), serve, soak, upgrade; kill: file, azure;"
        " spark: file, s3, postgres, nats",
    )  # fmt: skip
    made.add_argument("--fault", help="of frozen: stopped, slow, full, read-only, restarted or gone; all when left out")
    made.add_argument("--policy", choices=POLICIES, help="of the simulation; all when left out")
    made.add_argument("--bug", help="of the simulation: put a known bug in and count the seeds until it shows, or all")
    made.add_argument("--folder", type=Path, help="keep store and histories here")
    made.add_argument("--short", action="store_true", help="the size the tests use")
    made.add_argument("--json", action="store_true", help="JSON instead of text")
    return made


def settings_of(arguments: argparse.Namespace, run: Run) -> Settings:
    """The run's own size, changed by what was asked for."""
    asked = {
        name: getattr(arguments, name)
        for name in (*_NUMBERS, *_SIMULATED, *_SECONDS, "folder", "store", "fault", "policy", "bug")
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return msgspec.structs.replace(run.short if arguments.short else run.full, **given)


def chosen(name: str) -> list[Run]:
    runs = [run for run in RUNS if name in (run.name, run.id, "all")]
    if not runs:
        raise SystemExit(f"there is no run {name!r}; there are {', '.join(run.name for run in RUNS)}")
    return runs


def main() -> int:
    arguments = parser().parse_args()
    verdicts: list[Verdict] = []
    for run in chosen(arguments.run):
        settings = settings_of(arguments, run)
        verdict = asyncio.run(run.program(settings))
        verdicts.append(verdict)
        if not arguments.json:
            print("\n".join(lines(verdict)), flush=True)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(verdicts), indent=2).decode())
    return 0 if all(verdict.valid for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
