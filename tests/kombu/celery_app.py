"""An app for workers that tests start; the store is in the environment."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery

import holdfast.kombu  # noqa: F401 - makes the URLs known

app = Celery("tests.kombu.celery_app", broker=os.environ["STORE"], backend=os.environ["STORE"])
app.conf.update(
    broker_transport_options={"lease": 4.0},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_track_started=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


def note(line: str) -> None:
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{line}\n")


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(values: list[int]) -> int:
    return sum(values)


@app.task
def slow(name: str, seconds: float) -> str:
    note(f"{name} began")
    time.sleep(seconds)
    note(f"{name} ended")
    return name


@app.task(bind=True, max_retries=3)
def flaky(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return int(self.request.retries)


@app.task
def fatal_once(name: str) -> str:
    """Its process is killed the first time."""
    if name not in Path(os.environ["NOTES"]).read_text():
        note(name)
        os.kill(os.getpid(), signal.SIGKILL)
    return name
