"""manage.py holdfast_worker: runs the tasks of a backend until a signal stops it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import autoreload

from ... import api
from ...backend import Call, HoldfastBackend


class Command(BaseCommand):
    help = "Run the tasks of a Holdfast backend until SIGTERM or SIGINT; a second signal stops at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="the alias in TASKS (default)")
        parser.add_argument("--queue", action="append", default=[], help="only this queue; may be given several times")
        parser.add_argument("--concurrency", type=int, default=10, help="tasks at once, in threads (10)")
        parser.add_argument(
            "--reload", action="store_true", default=settings.DEBUG, help="start again when code changes"
        )
        parser.add_argument("--no-reload", dest="reload", action="store_false", help="the default without DEBUG")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reload"]:
            autoreload.run_with_reloader(self._work, **options)
        else:
            self._work(**options)

    def _work(self, **options: Any) -> None:
        from ...running import run

        backend = api.task_backends[options["backend"]]
        if not isinstance(backend, HoldfastBackend):
            raise CommandError(f"TASKS[{options['backend']!r}] is no Holdfast backend")
        queues = options["queue"] or sorted(backend.queues)
        if not queues:
            raise CommandError("name a queue: --queue NAME, or QUEUES in TASKS")
        for name in queues:
            backend.queue(name)  # makes it, with its options
        worker = backend.broker.worker(run, queues, Call, concurrency=options["concurrency"])
        self.stdout.write(f"working on {', '.join(queues)}")
        worker.run()
