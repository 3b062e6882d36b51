"""Enqueueing tasks and reading their results, in one process; `manage.py` is in test_management.py."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from holdfast.django import api
from holdfast.django.backend import Call, HoldfastBackend
from holdfast.django.running import run
from holdfast.errors import Unavailable
from holdfast.loop_thread import portal
from tests import ROOT
from tests.django import tasks

Status = api.TaskResultStatus
pytestmark = pytest.mark.timeout(120)


def finished(result: Any, backend: HoldfastBackend) -> Any:
    """The result, once a worker has run it."""
    with backend.broker.worker(run, ["default", "mail"], Call):
        deadline = time.monotonic() + 60
        while not result.is_finished:
            assert time.monotonic() < deadline, result.status
            time.sleep(0.02)
            result.refresh()
    return result


def test_a_task_runs_and_its_result_is_found_by_its_id(backend: HoldfastBackend) -> None:
    result = tasks.add.enqueue(1, y=2)
    assert (result.status, result.args, result.kwargs) == (Status.READY, [1], {"y": 2})
    found = tasks.add.get_result(result.id)
    assert (found.status, found.task.func) == (Status.READY, tasks.add.func)
    assert result.enqueued_at == found.enqueued_at
    done = finished(result, backend)
    assert (done.status, done.return_value, done.attempts) == (Status.SUCCESSFUL, 3, 1)
    assert done.enqueued_at <= done.started_at <= done.finished_at
    with pytest.raises(api.TaskResultDoesNotExist):
        backend.get_result("nobody's")
    with pytest.raises(api.TaskResultDoesNotExist):
        backend.get_result("01a1ef2f-371c-7000-801d-c49791100000")


def test_an_exception_is_final_and_its_class_is_kept(backend: HoldfastBackend) -> None:
    heard: list[Any] = []
    listen = lambda sender, task_result, **more: heard.append(task_result.status)  # noqa: E731 - Django keeps it weakly
    api.task_finished.connect(listen)
    done = finished(tasks.bad.enqueue(), backend)
    assert (done.status, done.attempts, heard) == (Status.FAILED, 1, [Status.FAILED])
    assert done.errors[0].exception_class is ValueError
    assert "this one is bad" in done.errors[0].traceback
    assert backend.queue("default").stats().dead == 1


def test_a_task_may_ask_to_run_again(backend: HoldfastBackend) -> None:
    assert finished(tasks.attempts.enqueue(2), backend).return_value == 2


async def test_async_tasks_and_calls(backend: HoldfastBackend) -> None:
    result = await tasks.send.aenqueue("ada")
    assert (await tasks.send.aget_result(result.id)).status == Status.READY


def test_priority_and_run_after_are_the_stores(backend: HoldfastBackend) -> None:
    tasks.add.using(priority=-100).enqueue(1, 1)
    tasks.add.using(priority=100).enqueue(2, 2)
    tasks.add.using(run_after=datetime.now(UTC) + timedelta(hours=1)).enqueue(3, 3)
    queue = backend.queue("default")
    assert [record.value.args[0] for record in queue.peek()] == [2, 1]
    assert queue.stats().delayed == 1


@pytest.mark.parametrize("options", [{"ENQUEUE": "on_commit"}])
def test_on_commit_waits_for_the_commit(backend: HoldfastBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        assert backend.queue("default").stats().total == 0
        with pytest.raises(api.TaskResultDoesNotExist):
            backend.get_result(result.id)
    assert finished(result, backend).return_value == 3

    with transaction.atomic():
        tasks.add.enqueue(3, 4)
        transaction.set_rollback(True)
    assert backend.queue("default").stats().pending == 0

    def away(*given: Any) -> str:
        raise Unavailable("the store is away")

    monkeypatch.setattr(backend, "_send", away)
    with transaction.atomic():
        lost = tasks.add.enqueue(5, 6)
    with ThreadPoolExecutor(1) as another, pytest.raises(Unavailable, match="away"):
        another.submit(tasks.add.get_result, lost.id).result()


@pytest.mark.parametrize("options", [{"ENQUEUE": "on_commit"}])
def test_an_id_that_was_made_first_is_the_tasks_and_survives_who_enqueued_it(backend: HoldfastBackend) -> None:
    with transaction.atomic():
        result = tasks.own_id.using(run_after=datetime.now(UTC) + timedelta(seconds=1)).enqueue()
    portal().run(backend.broker.core.store.values.delete([f"django/{result.id}"]))  # as if it had died after the send
    with pytest.raises(api.TaskResultDoesNotExist):
        backend.get_result(result.id)
    with backend.broker.worker(run, ["default"], Call):
        deadline = time.monotonic() + 60
        while (found := known(backend, result.id)) is None or not found.is_finished:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
    assert (found.id, found.return_value) == (result.id, result.id)


def known(backend: HoldfastBackend, id: str) -> Any:
    try:
        return backend.get_result(id)
    except api.TaskResultDoesNotExist:
        return None


def test_what_is_no_json_is_refused_and_an_exit_ends_the_task_alone(backend: HoldfastBackend) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(datetime.now(UTC), 1)
    done = [finished(each.enqueue(), backend) for each in (tasks.not_json, tasks.ends)]
    assert [each.errors[0].exception_class for each in done] == [TypeError, SystemExit]
    assert finished(tasks.add.enqueue(1, 2), backend).return_value == 3


@pytest.mark.parametrize("options", [{"ENQUEUE": "later"}, {"URI": "memory://"}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ImproperlyConfigured):
        HoldfastBackend("default", {"OPTIONS": options})


IN_TRANSACTION = """
import sys
import django
from django.conf import settings

url = sys.argv[1]
database = {"ENGINE": "django.db.backends.postgresql", "NAME": sys.argv[2], "HOST": sys.argv[3], "PORT": sys.argv[4],
            "USER": sys.argv[5]}
backend = {"BACKEND": "holdfast.django.HoldfastBackend", "QUEUES": [],
           "OPTIONS": {"URL": url, "ENQUEUE": "transaction"}}
settings.configure(USE_TZ=True, DATABASES={"default": database}, TASKS={"default": backend})
django.setup()
from django.db import connection, transaction
from holdfast.django import api
from tests.django import tasks

backend = api.task_backends["default"]
queue = backend.queue("default")
with transaction.atomic():
    connection.cursor().execute("CREATE TABLE orders (id int)")
    result = tasks.add.enqueue(1, 2)
    assert queue.stats().total == 0, "seen before the commit"
assert backend.get_result(result.id).args == [1, 2]
try:
    with transaction.atomic():
        tasks.add.enqueue(3, 4)
        raise KeyError
except KeyError:
    pass
assert queue.stats().total == 1, "it outlived the rollback"
tasks.add.enqueue(5, 6)
assert queue.stats().total == 2
"""


def test_a_task_commits_with_djangos_own_transaction(postgres: Any) -> None:
    import psycopg

    with psycopg.connect(postgres.url) as connection:
        info = connection.info
        place = [info.dbname, info.host, str(info.port), info.user]
    command = [sys.executable, "-c", IN_TRANSACTION, postgres.url, *place]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
