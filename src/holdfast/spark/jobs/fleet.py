"""What executors do for `process`: each task keeps one worker process running until the queue is drained.

A worker process of its own, because a handler may kill the process it runs in: then Spark's task goes on, starts
another, and the message runs out of attempts as it does with ordinary workers. Messages are claimed and settled by
that worker under leases of their own, so a killed executor loses nothing and nothing is settled twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import ConfigError, StoreError
from ...worker.processes import RESTART

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER = "completed long, retried long, dead long, failed long, lost long, restarts long"
_STILLBORN = 3  # deaths in a row before a worker process was even ready: it cannot start here


class Order(msgspec.Struct, frozen=True):
    """What the worker processes of a job are told."""

    url: str | None
    queue: str
    options: dict[str, Any]  # of the worker
    seconds: float | None  # no new claims after so long
    retries: bool  # whether waiting retries count as work
    forever: bool  # an empty queue is no end
    folder: str  # where modules are looked for too


class Tally(msgspec.Struct):
    """What the workers of one task did."""

    completed: int = 0
    retried: int = 0
    dead: int = 0
    failed: int = 0
    lost: int = 0
    restarts: int = 0

    def add(self, other: Tally) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Told(msgspec.Struct, frozen=True):
    """A line of the worker process: it is ready, what it has done so far, what is wrong with its order."""

    ready: bool = False
    tally: Tally | None = None
    wrong: str | None = None
    over: bool = False


class FleetTask:
    """For `mapInArrow`: one row in for each task, what its workers did out."""

    def __init__(self, order: Order, target: Any, type: Any) -> None:
        self._order = order
        self._target = target  # a name, or a function that Spark has pickled for us
        self._type = type

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            pass
        tally = self._keep_one_running()
        names = list(Tally.__struct_fields__)
        columns = [pa.array([getattr(tally, name)], pa.int64()) for name in names]
        yield pa.RecordBatch.from_arrays(columns, names=names)

    def _keep_one_running(self) -> Tally:
        sum, started, stillborn = Tally(), time.monotonic(), 0
        while True:
            done = self._run_one(time.monotonic() - started)
            sum.add(done.tally or Tally())
            if done.wrong is not None:
                raise ConfigError(done.wrong)
            if done.over:
                return sum
            sum.restarts += 1
            stillborn = 0 if done.ready else stillborn + 1
            if stillborn >= _STILLBORN:
                raise StoreError("the worker process dies before it can work; its last words are in the executor's log")
            time.sleep(RESTART.after(stillborn + 1))

    def _run_one(self, spent: float) -> Told:
        """One worker process, from start to end; the last it told, put together."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-m", "holdfast.spark.jobs.child"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                _write(child.stdin, self._pickled(spent))
                last = Told()
                for line in child.stdout:
                    said = msgspec.json.decode(line, type=Told)
                    last = Told(last.ready or said.ready, said.tally or last.tally, said.wrong, said.over)
                return last
            except BrokenPipeError:
                return Told()
            finally:
                child.kill()

    def _pickled(self, spent: float) -> bytes:
        from pyspark import cloudpickle

        left = None if self._order.seconds is None else max(0.0, self._order.seconds - spent)
        order = msgspec.structs.replace(self._order, seconds=left)
        data: bytes = cloudpickle.dumps((order, self._target, self._type))  # type: ignore[no-untyped-call]  # theirs
        return data


def _write(pipe: Any, data: bytes) -> None:
    """The pipe stays open: when it ends, the task is gone, and so is the reason to work."""
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()
