"""The runs by name, each with its full size and the short one the tests use."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..settings import Settings
from ..verdict import Verdict
from .backup import backup
from .bits import bits
from .celery import celery
from .clocks import clocks
from .disk import disk, disk_slate
from .frozen import frozen
from .history import history
from .identity import identity
from .kill import kill
from .nats import nats, nats_cluster
from .poison import poison
from .postgres import failover, postgres
from .power import power
from .protocol import protocol
from .queues import queues
from .restore import restore
from .retries import retries
from .s3 import s3
from .schedules import schedules
from .serve import serve
from .simulate import simulate
from .slate import slate
from .soak import soak
from .spark import spark_process
from .spark_copy import spark
from .spark_lake import spark_lake
from .stop import stop
from .upgrade import upgrade


@dataclass(frozen=True)
class Run:
    name: str
    id: str  # in reliability.md
    program: Callable[[Settings], Coroutine[Any, Any, Verdict]]
    full: Settings
    short: Settings


RUNS = (
    Run(
        "kill", "R1", kill, Settings(),
        Settings(messages=600, producers=2, workers=3, kills=6, producer_kills=2, interval=0.7, work=0.15, strict=False,
                 deadline=60, quiet=True),
    ),
    Run(
        "stop", "R2", stop, Settings(stops=50),
        Settings(messages=1000, producers=2, workers=4, stops=4, lease=1.0, interval=0.5, work=0.15, deadline=60,
                 quiet=True),
    ),
    Run(
        "clocks", "R3", clocks, Settings(kills=40),
        Settings(messages=400, producers=2, workers=4, kills=3, lease=1.0, interval=0.7, work=0.15, deadline=60,
                 quiet=True),
    ),
    Run(
        "poison", "R10", poison, Settings(messages=5000, producers=2, workers=3, work=0.02),
        Settings(messages=200, producers=1, workers=2, interval=0.3, lease=1.0, work=0.02, deadline=60, quiet=True),
    ),
    Run(
        "retries", "", retries, Settings(messages=200_000),
        Settings(messages=5000, deadline=60, strict=False, quiet=True),
    ),
    Run(
        "power", "R8", power, Settings(messages=2000, stops=200),
        Settings(messages=300, stops=10, quiet=True),
    ),
    Run(
        "disk", "R9", disk, Settings(workers=4, stops=20, kills=10, interval=2.0, work=0.05),
        Settings(messages=400, producers=2, workers=2, stops=2, kills=1, lease=1.0, interval=0.7, work=0.02,
                 deadline=60, quiet=True),
    ),
    Run(
        "disk-slate", "", disk_slate,
        Settings(messages=4000, stops=10, interval=3.0, lease=6.0, work=0.02),
        Settings(messages=200, stops=1, interval=0.7, lease=6.0, work=0.02, deadline=60, quiet=True),
    ),
    Run(
        "identity", "", identity, Settings(messages=30_000, workers=4, stops=60, interval=1.0, work=0.05),
        Settings(messages=600, producers=2, workers=2, stops=5, interval=0.4, lease=1.0, work=0.02, deadline=60,
                 quiet=True),
    ),
    Run(
        "queues", "", queues, Settings(seconds=30.0),
        Settings(queues=40, seconds=1.0, strict=False, quiet=True),
    ),
    Run(
        "postgres", "R6", postgres, Settings(stops=50, kills=20, producer_kills=3, interval=0.8, work=0.05),
        Settings(messages=600, producers=2, workers=2, stops=6, kills=2, producer_kills=1, interval=0.4, work=0.05,
                 deadline=60, quiet=True),
    ),
    Run(
        "failover", "", failover, Settings(stops=5, kills=10, interval=2.5, work=0.05),
        Settings(messages=400, producers=2, workers=2, stops=1, kills=1, interval=0.8, work=0.05, deadline=60,
                 quiet=True),
    ),
    Run(
        "serve", "", serve, Settings(stops=20, kills=5, interval=2.0, work=0.05),
        Settings(messages=400, producers=2, workers=2, stops=2, kills=1, interval=0.7, work=0.05, deadline=60,
                 quiet=True),
    ),
    Run(
        "nats", "R7", nats, Settings(kills=20, producer_kills=10, stops=4, interval=1.5, work=0.05),
        Settings(messages=500, producers=2, workers=2, kills=2, producer_kills=2, stops=1, interval=0.5, work=0.03,
                 deadline=60, quiet=True),
    ),
    Run(
        "nats-cluster", "", nats_cluster,
        Settings(messages=5000, producers=2, workers=3, kills=6, producer_kills=3, stops=1, interval=2.0, work=0.05),
        Settings(messages=200, producers=1, workers=2, kills=1, producer_kills=1, stops=0, interval=0.5, work=0.03,
                 deadline=60, quiet=True),
    ),
    Run(
        "slate", "", slate, Settings(messages=20_000, stops=20, interval=2.0, work=0.02, concurrency=8, deadline=120),
        Settings(messages=400, stops=3, interval=0.7, work=0.02, lease=1.0, deadline=60, quiet=True),
    ),
    Run(
        "protocol", "R12", protocol, Settings(messages=80_000),
        Settings(messages=100, strict=False, quiet=True),
    ),
    Run(
        "simulate", "R16", simulate, Settings(seeds=20_000, seed=0),
        Settings(seeds=75, seed=0, quiet=True),
    ),
    Run(
        "s3", "R4", s3,
        Settings(workers=4, kills=20, producer_kills=4, interval=6.0, lease=15.0, work=0.05, concurrency=32,
                 deadline=1800),
        Settings(messages=60, producers=2, workers=2, kills=2, producer_kills=1, interval=1.0, lease=6.0, work=0.4,
                 deadline=60, strict=False, quiet=True),
    ),
    Run(
        "history", "R15", history, Settings(store="all"),
        Settings(seconds=6.0, strict=False, quiet=True),
    ),
    Run(
        "restore", "R17", restore, Settings(store="all", seconds=10.0),
        Settings(seconds=1.5, quiet=True),
    ),
    Run(
        "backup", "R20", backup, Settings(store="all", messages=20_000, stops=20),
        Settings(messages=300, stops=3, quiet=True),
    ),
    Run(
        "upgrade", "R20", upgrade,
        Settings(store="all", messages=8000, producers=4, workers=4, kills=12, interval=1.5, lease=6.0, work=0.05,
                 deadline=300),
        Settings(messages=240, producers=2, workers=2, kills=2, interval=0.3, lease=2.0, work=0.03, deadline=60,
                 strict=False, quiet=True),
    ),
    Run(
        "frozen", "R21", frozen, Settings(store="all", stops=0),
        Settings(stops=1, quiet=True),
    ),
    Run(
        "bits", "R18", bits, Settings(store="all", stops=800),
        Settings(stops=30, quiet=True),
    ),
    Run(
        "soak", "R14", soak, Settings(store="all", seconds=1800.0),
        Settings(seconds=6.0, quiet=True),
    ),
    Run(
        "celery", "", celery,
        Settings(messages=10_000, workers=2, concurrency=4, kills=20, stops=5, lease=5.0, work=0.02, deadline=900),
        Settings(messages=150, workers=2, concurrency=2, kills=2, stops=1, lease=2.0, work=0.02, deadline=100,
                 quiet=True),
    ),
    Run(
        "schedules", "", schedules, Settings(store="all", messages=200, workers=6, kills=30, seconds=60.0),
        Settings(messages=20, workers=3, kills=3, seconds=10.0, strict=False, quiet=True),
    ),
    Run(
        "spark-process", "", spark_process,
        Settings(messages=20_000, kills=5, lease=4.0, work=0.002, deadline=900),
        Settings(messages=1500, kills=1, lease=3.0, work=0.002, deadline=200, quiet=True),
    ),
    Run(
        "spark", "R13", spark, Settings(messages=200_000, kills=5, producer_kills=5, deadline=1800),
        Settings(messages=400, kills=1, producer_kills=1, deadline=300, quiet=True),
    ),
    Run(
        "spark-lake", "", spark_lake, Settings(messages=200_000, kills=5, producer_kills=5, deadline=1800),
        Settings(messages=400, kills=0, producer_kills=1, deadline=300, strict=False, quiet=True),
    ),
)  # fmt: skip
