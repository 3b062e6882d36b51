"""`python -m benchmarks.s3`: requests per message, throughput with latency, idle requests, beside their bars."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.servers.bucket import BucketServer
from tests.servers.proxy import Proxy
from tests.servers.s3 import Server

from . import throughput, usage
from .throughput import Shape, Turn
from .usage import Usage

_PARTS = ("requests", "throughput", "idle")


class Report(msgspec.Struct):
    """Everything that was measured."""

    server: str
    usage: list[Usage] = []
    turns: list[tuple[Shape, list[Turn]]] = []


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.s3", description=__doc__)
    made.add_argument("--only", choices=_PARTS, action="append", help="one part; may be repeated")
    made.add_argument("--server", choices=("seaweedfs", "memory"), default="seaweedfs", help="memory: one in Python")
    made.add_argument("--count", type=int, default=20_000, help="messages of a batched load")
    made.add_argument("--size", type=int, default=1024)
    made.add_argument("--lone", type=int, default=5, help="messages that come one by one")
    made.add_argument("--paced", type=float, default=30.0, help="seconds of 100 single calls each")
    made.add_argument("--rest", type=float, default=8.0, help="seconds after a lone message, for its flush")
    made.add_argument("--window", type=float, default=30.0, help="seconds until blocks of lone messages are gone")
    made.add_argument(
        "--drained",
        type=int,
        default=8000,
        help="messages of one turn with latency; twice with shards, four times for workers",
    )
    made.add_argument("--pairs", action="store_true", help="of throughput only one process against four, on one head")
    made.add_argument("--latency", type=float, default=0.06, help="seconds added to every request")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--idle", type=float, default=300.0, help="seconds of idleness before counting")
    made.add_argument("--watched", type=float, default=300.0, help="seconds of counting")
    made.add_argument("--json", type=Path, help="write everything here")
    return made


async def run(
    arguments: argparse.Namespace, server: Server | BucketServer, shapes: Sequence[Shape] = throughput.SHAPES
) -> Report:
    report, parts = Report(arguments.server), arguments.only or _PARTS
    with Proxy(server.port) as proxy:
        url = server.url("bench", endpoint=proxy.endpoint)
        if "requests" in parts:
            report.usage += await _requests(arguments, proxy, url)
        if "throughput" in parts:
            report.turns = list((await _throughput(arguments, proxy, url, shapes)).items())
        if "idle" in parts:
            tell("idle")
            report.usage.append(
                await usage.idle(proxy, url, after=arguments.idle, watched=arguments.watched, bar=120.0)
            )
    return report


async def _requests(arguments: argparse.Namespace, proxy: Proxy, url: str) -> list[Usage]:
    found = []
    for batch, bar in ((1000, 0.02), (50, 0.2)):
        tell(f"batches of {batch}")
        found.append(await usage.batched(proxy, url, count=arguments.count, batch=batch, size=arguments.size, bar=bar))
    for linger, most in ((0.0, None), (0.1, 0.5)):
        tell("single calls")
        found.append(await usage.paced(proxy, url, seconds=arguments.paced, linger=linger, bar=most))
    load = usage.Lone(count=arguments.lone, size=arguments.size, rest=arguments.rest, window=arguments.window)
    for apart in (False, True):
        for archive, bar in ((False, 6.0), (True, 10.0)):
            tell("lone messages")
            found.append(await usage.lone(proxy, url, load, archive=archive, apart=apart, bar=None if apart else bar))
    return found


async def _throughput(
    arguments: argparse.Namespace, proxy: Proxy, url: str, shapes: Sequence[Shape]
) -> dict[Shape, list[Turn]]:
    found: dict[Shape, list[Turn]] = {shape: [] for shape in shapes}
    for number in range(arguments.repeats):
        for shape, turns in found.items():
            tell(f"{shape.name}, turn {number + 1} of {arguments.repeats}")
            turns.append(
                await throughput.measure(
                    proxy,
                    url,
                    shape,
                    count=arguments.drained * shape.share,
                    batch=50,
                    size=arguments.size,
                    latency=arguments.latency,
                )
            )
    return found


def lines(report: Report, arguments: argparse.Namespace) -> list[str]:
    told = [f"server: {report.server}"]
    if report.usage:
        told += usage.lines(report.usage)
    if report.turns:
        told += throughput.lines(dict(report.turns), latency=arguments.latency, batch=50)
    return told


def tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    arguments = parser().parse_args()
    with Server() if arguments.server == "seaweedfs" else BucketServer() as server:
        shapes = [shape for pair in throughput.PAIRS for shape in pair] if arguments.pairs else throughput.SHAPES
        report = asyncio.run(run(arguments, server, shapes))
    sys.stdout.write("\n".join(lines(report, arguments)) + "\n")
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))


if __name__ == "__main__":
    main()
