"""`python -m benchmarks.nats`: rounds in turn, medians, ratios."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import msgspec

from holdfast.bench.environment import peers_python, requirements
from tests.servers.nats import Server

from .sides import Figures, ours, raw

_BARS = (("publish", "raw nats-py", 0.7), ("drain", "raw nats-py", 0.8), ("worker", "taskiq-nats", 2.0))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.nats", description=__doc__)
    made.add_argument("--count", type=int, default=20_000)
    made.add_argument("--size", type=int, default=1024)
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--requirements", type=Path, help="pinned requirements of the peers")
    made.add_argument("--peers-python", type=Path, help="a Python with taskiq-nats; else one is made, once")
    made.add_argument("--no-peers", action="store_true", help="only Holdfast and raw nats-py")
    made.add_argument("--url", help="a server of yours; else one is started")
    made.add_argument("--json", type=Path, help="write everything here")
    return made


def peers(arguments: argparse.Namespace) -> Path | None:
    """The Python of the peers' own environment; None: without them."""
    if arguments.no_peers:
        return None
    given: Path | None = arguments.peers_python
    return given or peers_python(requirements(arguments.requirements, name="peers-nats"))


def taskiq(python: Path, url: str, count: int, size: int) -> Figures:
    """One round of the peer, in its own environment."""
    program = Path(__file__).parent / "peers" / "on_taskiq.py"
    command = [str(python), str(program), url, str(count), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"taskiq-nats failed:\n{done.stderr[-2000:]}")
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Figures)


def rounds(arguments: argparse.Namespace, url: str, peer_python: Path | None) -> dict[str, list[Figures]]:
    """Every side in turn, so that what the machine does meanwhile hits all of them."""
    found: dict[str, list[Figures]] = {"Holdfast": [], "raw nats-py": []}
    for number in range(arguments.repeats):
        found["raw nats-py"].append(asyncio.run(raw(url, arguments.count, arguments.size)))
        found["Holdfast"].append(asyncio.run(ours(url, arguments.count, arguments.size)))
        if peer_python is not None:
            peer = taskiq(peer_python, url, arguments.count, arguments.size)
            found.setdefault("taskiq-nats", []).append(peer)
        sys.stderr.write(f"round {number + 1} of {arguments.repeats}\n")
    return found


def middle(figures: list[Figures], name: str) -> float:
    given = [getattr(one, name) for one in figures]
    return median(given) if None not in given else float("nan")


def lines(found: dict[str, list[Figures]]) -> list[str]:
    """One row a side, then the bars."""
    names = ("publish", "drain", "worker", "single")
    rows = [f"{'messages a second':14} {'':6}" + "".join(f"{name:>10}" for name in names)]
    rows += [
        f"{side:21}" + "".join(f"{middle(figures, name):>10,.0f}" for name in names) for side, figures in found.items()
    ]
    for name, side, bar in _BARS:
        if side in found:
            theirs = middle(found[side], "drain" if name == "worker" else name)
            ratio = middle(found["Holdfast"], name) / theirs
            rows.append(f"{name} against {side}: {ratio:.2f} ×, bar {bar} ×: {'ok' if ratio >= bar else 'below'}")
    return rows


def main() -> None:
    arguments = parser().parse_args()
    peer_python = peers(arguments)
    if arguments.url:
        found = rounds(arguments, arguments.url, peer_python)
    else:
        with Server() as server:
            found = rounds(arguments, server.url, peer_python)
    sys.stdout.write("\n".join(lines(found)) + "\n")
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))


if __name__ == "__main__":
    main()
