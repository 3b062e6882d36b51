"""How large a fault run is."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds and counts; each run has its own full size, tests use a short one."""

    messages: int = 20_000
    producers: int = 4
    workers: int = 6
    kills: int = 40  # SIGKILLs of workers
    producer_kills: int = 8
    stops: int = 20  # SIGSTOPs of workers
    interval: float = 1.0  # mean seconds between two faults
    lease: float = 2.0
    poll: float = 1.0  # the store's poll interval, for the bound of the recovery time
    work: float = 0.08  # mean seconds of a handler: most of the time most workers hold something
    concurrency: int = 8
    seed: int = 1
    deadline: float = 600.0  # seconds from the last fault to an empty queue
    strict: bool = True  # also judge the recovery time
    shards: int = 1  # of the queue in the runs on a bucket
    store: str = "file"  # of the runs that take one; history: or all
    fault: str = ""  # of frozen: only this one
    seconds: float = 600.0  # a history goes on for
    seeds: int = 0  # of the simulation, for each policy
    policy: str = ""  # of the simulation: bucket, folder or slatedb; all when empty
    bug: str = ""  # of the simulation: a known one, or all of them, put in to be found
    queues: int = 10_000  # of the run with many
    folder: Path | None = None  # keep store and histories here
    quiet: bool = False
