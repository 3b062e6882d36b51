"""Results, groups and chords of Celery as values of a store; workers are in test_transport_in_workers.py."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import pytest
from celery import Celery, states
from celery.exceptions import TimeoutError as NotInTime

from holdfast.kombu.backend import Backend

pytestmark = pytest.mark.timeout(180)  # the first test of a store starts its server


@pytest.fixture
def app(url: str) -> Celery:
    return Celery("tests", broker=url, backend=url)


def test_results_are_kept_and_forgotten(app: Celery) -> None:
    backend: Any = app.backend
    assert isinstance(backend, Backend)
    assert backend.get_state("one") == states.PENDING
    backend.store_result("one", {"ä": [1, 2]}, states.SUCCESS)
    backend.store_result("two", ValueError("bad"), states.FAILURE)
    assert app.AsyncResult("one").get(timeout=5) == {"ä": [1, 2]}
    with pytest.raises(ValueError, match="bad"):
        app.AsyncResult("two").get(timeout=5)
    app.AsyncResult("one").forget()
    assert backend.get_state("one") == states.PENDING


def test_results_expire(app: Celery) -> None:
    app.conf.result_expires = 1
    app.backend.store_result("one", 1, states.SUCCESS)
    assert app.AsyncResult("one").get(timeout=5) == 1
    deadline = time.monotonic() + 10
    while app.backend.get(app.backend.get_key_for_task("one")) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    app.backend.cleanup()


def test_who_waits_is_told_soon_or_that_it_took_too_long(app: Celery) -> None:
    with pytest.raises(NotInTime):
        app.AsyncResult("late").get(timeout=0.2)
    threading.Timer(0.2, lambda: app.backend.store_result("late", 7, states.SUCCESS)).start()
    assert app.AsyncResult("late").get(timeout=10) == 7


def test_groups_are_restored_and_joined(app: Celery) -> None:
    results = [app.AsyncResult(f"part {number}") for number in range(3)]
    group = app.GroupResult("group", results)
    group.save()
    for number, result in enumerate(results):
        app.backend.store_result(result.id, number, states.SUCCESS)
    restored = app.GroupResult.restore("group")
    assert restored.join(timeout=10) == restored.join_native(timeout=10) == [0, 1, 2]
    restored.delete()
    assert app.GroupResult.restore("group") is None


class Part:
    """Of a chord, as its worker knows it."""

    def __init__(self, id: str, chord: Any) -> None:
        self.id, self.group, self.chord = id, "chord", chord


def test_a_part_that_runs_twice_counts_once_and_a_chord_is_joined_once(app: Celery) -> None:
    @app.task(name="body")
    def body(values: list[int]) -> int:
        return sum(values)

    called: list[Any] = []
    app.tasks["body"].apply_async = lambda args=None, *more, **options: called.append(args)
    results = [app.AsyncResult(f"part {number}") for number in range(3)]
    app.GroupResult("chord", results).save()
    signature = {**body.s(), "chord_size": 3}
    for number in (0, 1, 1, 0):
        app.backend.store_result(f"part {number}", number, states.SUCCESS)
        app.backend.on_chord_part_return(Part(f"part {number}", signature), states.SUCCESS, number)
    assert called == []
    app.backend.store_result("part 2", 2, states.SUCCESS)
    for _ in range(2):
        app.backend.on_chord_part_return(Part("part 2", signature), states.SUCCESS, 2)
    assert called == [([0, 1, 2],)]


def test_a_backend_travels_by_its_url_and_hides_the_password(app: Celery) -> None:
    copy = pickle.loads(pickle.dumps(app.backend))
    app.backend.store_result("one", 1, states.SUCCESS)
    assert copy.get_state("one") == states.SUCCESS
    assert "secret" not in Backend(app, url="holdfast+postgresql://me:secret@host/db").as_uri()
