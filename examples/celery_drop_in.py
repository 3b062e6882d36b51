"""A Celery app without Redis or RabbitMQ: python examples/celery_drop_in.py [URL of a store]"""

import sys
from pathlib import Path
from tempfile import mkdtemp

from celery import Celery, chord
from celery.contrib.testing.worker import start_worker

import holdfast.kombu  # noqa: F401 - makes the URLs known

store = sys.argv[1] if len(sys.argv) > 1 else (Path(mkdtemp()) / "jobs").as_uri()
app = Celery("shop", broker=f"holdfast+{store}", backend=f"holdfast+{store}")
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, broker_transport_options={"lease": 30})


@app.task
def charge(amount: int) -> int:
    print(f"charging {amount}")
    return amount


@app.task
def report(amounts: list[int]) -> str:
    return f"{len(amounts)} payments, {sum(amounts)} in all"


if __name__ == "__main__":
    # In production: celery -A celery_drop_in worker
    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
        print(charge.delay(20).get(timeout=30))
        print(chord(charge.s(amount) for amount in (1, 2, 3))(report.s()).get(timeout=30))
