"""An app with a task that does nothing, on the broker that the environment names: the same for every side.

`python noop.py COUNT` sends so many tasks, one `delay()` after the other, and tells the seconds;
`celery -A noop worker` runs them.
"""

import os
import sys
import time

from celery import Celery

if os.environ["NOOP_BROKER"].startswith("holdfast+"):
    import holdfast.kombu  # noqa: F401 - makes the URLs known

app = Celery("noop", broker=os.environ["NOOP_BROKER"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=64,  # what Celery's manual says of short tasks
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
_WARM = 50  # calls before the clock runs: the first one opens the connection


@app.task(name="noop")  # type: ignore[untyped-decorator] # celery has no types
def noop() -> None:
    """A byte for each: who measures looks at the size."""
    os.write(_done(), b".")


def _done() -> int:
    global _file
    if _file is None:
        _file = os.open(os.environ["NOOP_DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return _file


_file: "int | None" = None


def main(count: int) -> None:
    for _ in range(_WARM):
        noop.delay()
    started = time.perf_counter()
    for _ in range(count - _WARM):
        noop.delay()
    sys.stdout.write(f"{(time.perf_counter() - started) * count / (count - _WARM)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
