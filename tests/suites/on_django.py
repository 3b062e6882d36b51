"""Django's tests of tasks: in place of its two backends stand ours, under their paths.

The dummy backend shows what was enqueued, and can forget it: here both ask the store. The immediate backend runs a task
at once: here it is enqueued, and run by what `manage.py holdfast_worker` runs.
"""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings

settings.configure(
    USE_TZ=True,
    SECRET_KEY="suite",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["holdfast.django"],
)
django.setup()

import django.tasks.backends.dummy  # noqa: E402 - it wants its settings first
import django.tasks.backends.immediate  # noqa: E402

from holdfast.django.backend import Call, HoldfastBackend  # noqa: E402
from holdfast.django.running import run  # noqa: E402

PAGE = 1000


class OnStore(HoldfastBackend):
    """Its options are those that the tests give it: the store is known here."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.url = os.environ["SUITE_URL"]

    def clear(self) -> None:
        """Whatever waits is gone, as if it had never been."""
        for info in self.broker.queues():
            self.broker.delete_queue(info.name, force=True)


class Dummy(OnStore):
    @property
    def results(self) -> list[Any]:
        """What waits, in the order in which it came."""
        found = [
            each for info in self.broker.queues() for each in self.broker.queue(info.name, Call).list("ready", PAGE)
        ]
        return [self.get_result(each.id) for each in sorted(found, key=lambda each: each.id)]


class Immediate(OnStore):
    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        with self.broker.worker(run, [task.queue_name], Call):
            self.queue(task.queue_name).wait(result.id, timeout=60)
        return self.get_result(result.id)


django.tasks.backends.dummy.DummyBackend = Dummy
django.tasks.backends.immediate.ImmediateBackend = Immediate
