"""The app of the workers; the store and its settings are in the environment."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

import holdfast.kombu  # noqa: F401 - makes the URLs known

from .notes import Noting

app = Celery("chaos", broker=os.environ["CHAOS_URL"], backend=os.environ["CHAOS_URL"])
app.conf.update(json.loads(os.environ["CHAOS_SETTINGS"]))
_noting: Noting | None = None


@worker_process_init.connect  # type: ignore[untyped-decorator] # celery has no types
def begin(**given: Any) -> None:
    """In each child, while its main process is certainly there."""
    global _noting
    _noting = Noting(Path(os.environ["CHAOS_NOTES"]))


def work(key: str, seconds: float) -> str:
    assert _noting is not None, "this runs in the pool prefork only"
    _noting.note("start", key)
    time.sleep(seconds)
    _noting.note("end", key)
    return key


@app.task(name="plain")  # type: ignore[untyped-decorator] # celery has no types
def plain(key: str, seconds: float) -> str:
    return work(key, seconds)


@app.task(name="retried", bind=True, max_retries=5)  # type: ignore[untyped-decorator] # celery has no types
def retried(self: Any, key: str, seconds: float, times: int) -> str:
    done = int(self.request.retries)
    work(f"{key}#{done}", seconds)
    if done < times:
        raise self.retry(countdown=0.3)
    return key


@app.task(name="body")  # type: ignore[untyped-decorator] # celery has no types
def body(parts: list[str], key: str) -> list[str]:
    work(key, 0.0)
    return sorted(parts)
