"""The processes that are hurt: `python -m chaos.histories.child SPEC`. They die with their parent."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

import holdfast

from ..child import die_with_parent
from .callers import Caller
from .calls import Log
from .streams import Stream

QUEUES: dict[str, dict[str, bool]] = {"main": {}, "plain": {"dead_letter": False}}
STREAMED = "main"
SHARED = "receipts"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is told."""

    name: str
    url: str
    folder: str
    seed: int
    threads: int
    scale: float  # leases and delays are so many times as long
    rare: float  # mean seconds between two calls of a thread that concern the whole queue
    streams: bool  # whether this store serves claim batches


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=Spec)
    die_with_parent()
    broker = holdfast.sync.connect(spec.url)
    queues = {name: broker.queue(name, create=False) for name in QUEUES}
    log = Log(Path(spec.folder) / f"{spec.name}.calls")
    callers = [
        Caller(
            f"{spec.name}.{number}", log, queues, shared=Path(spec.folder) / SHARED,
            seed=f"{spec.seed}/{spec.name}/{number}", scale=spec.scale, rare=spec.rare,
        )
        for number in range(spec.threads)
    ]  # fmt: skip
    for name in queues:
        callers[0].resume(name)
    if spec.streams:
        seed = f"{spec.seed}/{spec.name}/stream"
        Stream(f"{spec.name}.stream", log, spec.url, STREAMED, seed=seed, scale=spec.scale).start()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


if __name__ == "__main__":
    main()
