"""Main processes of Celery on one folder, and the signals that they and their children get."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from celery import Celery

from holdfast.kombu.link import Link, close_all, link_to

from .notes import Kill, Notes

ROOT = Path(__file__).resolve().parent.parent.parent
_STOP_S = 30.0  # for a warm shutdown


class Site:
    """`with Site(folder, lease=2.0) as site:` starts nothing; the end ends all that was started."""

    def __init__(self, folder: Path, *, lease: float, concurrency: int, is_late: bool) -> None:
        (folder / "notes").mkdir(parents=True)
        self.url = f"holdfast+file://{folder / 'store'}"
        self.notes = Notes(folder / "notes")
        self.kills: list[Kill] = []
        self.mains: list[subprocess.Popen[bytes]] = []  # that run
        self._folder = folder
        self._concurrency = concurrency
        settings: dict[str, Any] = {
            "broker_transport_options": {"lease": lease},
            "broker_connection_retry_on_startup": True,
            "worker_hijack_root_logger": False,
            **({"task_acks_late": True, "task_reject_on_worker_lost": True} if is_late else {}),
        }
        self.app = Celery("chaos.sender", broker=self.url, backend=self.url)
        self.app.conf.update(settings)
        self._environment = {
            **os.environ,
            "CHAOS_URL": self.url,
            "CHAOS_NOTES": str(folder / "notes"),
            "CHAOS_SETTINGS": json.dumps(settings),
        }
        self._groups: list[int] = []  # of processes: a main and its children, orphans too

    @property
    def link(self) -> Link:
        return link_to(self.url.removeprefix("holdfast+"))

    def start(self) -> None:
        number = len(self._groups)
        command = [sys.executable, "-m", "celery", "-A", "chaos.celery.tasks", "worker", "-l", "WARNING"]
        options = ["--concurrency", str(self._concurrency), "-n", f"w{number}@%h"]
        with (self._folder / f"w{number}.log").open("wb") as log:
            main = subprocess.Popen(
                [*command, *options], cwd=ROOT, env=self._environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.mains.append(main)
        self._groups.append(main.pid)

    def kill_child(self, chance: random.Random) -> bool:
        """One that runs a task, if there is one now."""
        self.notes.look()
        busy = [pid for main in self.mains for pid in self.notes.busy(main.pid)]
        if not busy:
            return False
        pid = chance.choice(busy)
        self._kill(Kill(pid, time.monotonic(), is_main=False))
        return True

    def kill_main(self, chance: random.Random) -> bool:
        """One with a child that runs a task, alone: its children are orphans. Another one is started for it."""
        self.notes.look()
        busy = [main for main in self.mains if self.notes.busy(main.pid)]
        if not busy:
            return False
        main = chance.choice(busy)
        self._kill(Kill(main.pid, time.monotonic(), is_main=True))
        main.wait(_STOP_S)
        self.mains.remove(main)
        self.start()
        return True

    def _kill(self, kill: Kill) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(kill.pid, signal.SIGKILL)
            self.kills.append(kill)
        self.notes.gone(kill)

    def check(self) -> None:
        """No main process ends by itself."""
        for main in self.mains:
            if main.poll() is not None:
                log = self._folder / f"w{self._groups.index(main.pid)}.log"
                raise RuntimeError(f"a worker ended with {main.returncode}:\n{log.read_text(errors='replace')[-2000:]}")

    def live(self) -> int:
        """Messages that wait, are delayed or held."""

        async def ask() -> int:
            stats = await (await self.link.queue("celery")).stats()
            return stats.pending + stats.delayed + stats.processing + stats.retry

        return self.link.run(ask())

    def dead(self) -> int:
        async def ask() -> int:
            return (await (await self.link.queue("celery")).stats()).dead

        return self.link.run(ask())

    def stop(self) -> list[int]:
        """SIGTERM; those that had to be killed."""
        for main in self.mains:
            main.terminate()
        late: list[int] = []
        for main in self.mains:
            try:
                main.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                late.append(main.pid)
        return late

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for main in self.mains:
            main.wait(_STOP_S)
        self.app.close()
        close_all()
