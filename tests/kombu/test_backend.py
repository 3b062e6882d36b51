"""Results, groups and chords of Celery as values of a store; workers are in test_transport_in_workers.py."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, states
from celery.exceptions import ChordError
from celery.exceptions import TimeoutError as NotInTime
from celery.result import GroupResult

from holdfast.kombu.backend import Backend
from holdfast.kombu.chords import LEAF_PARTS
from holdfast.kombu.link import link_to

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


def test_who_waits_for_a_chord_hears_what_its_task_has_raised(app: Celery) -> None:
    """Both fail at nearly the same moment: the task's own exception tells more than the ChordError."""
    app.backend.store_result("part", ValueError("bad"), states.FAILURE)
    body = app.AsyncResult("body", parent=app.GroupResult("group", [app.AsyncResult("part")]))
    asked = app.backend.get_task_meta
    first = [True]

    def meta(task_id: str, **options: object) -> object:
        if task_id == "body" and first.pop():  # after `get` has looked at the tasks before
            app.backend.store_result("body", ChordError("ValueError('bad')"), states.FAILURE)
        return asked(task_id, **options)

    looked = ["nothing yet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.backend, "get_task_meta", meta)
        raising_now = body._maybe_reraise_parent_error
        patch.setattr(body, "_maybe_reraise_parent_error", lambda: None if looked and looked.pop() else raising_now())
        with pytest.raises(ValueError, match="bad"):
            body.get(timeout=10)


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
        self.ignore_result = False


class Header:
    """A chord that was sent; `called` are the calls of its body."""

    def __init__(self, app: Celery, size: int) -> None:
        @app.task(name=f"body {uuid4()}")
        def body(values: list[int]) -> int:
            return sum(values)

        self.called: list[Any] = []
        self._app = app
        self._ids = [f"part {number}" for number in range(size)]
        body.apply_async = lambda args=None, *more, **options: self.call(args)
        self.signature = {**body.s(), "chord_size": size}
        self.send()

    def send(self) -> None:
        app: Any = self._app
        app.backend.apply_chord(("chord", [app.AsyncResult(id) for id in self._ids]), self.signature)

    def call(self, args: Any) -> None:
        self.called.append(args)

    def store(self, *numbers: int) -> None:
        for number in numbers:
            self._app.backend.store_result(self._ids[number], number, states.SUCCESS)

    def returns(self, *numbers: int) -> None:
        for number in numbers:
            part = Part(self._ids[number], self.signature)
            self._app.backend.on_chord_part_return(part, states.SUCCESS, number)


class Nested(Header):
    """Its second part is a group of two, whose tasks return to the chord; its size is not in the message."""

    def send(self) -> None:
        app: Any = self._app
        first, *others = [app.AsyncResult(id) for id in self._ids]
        self.signature["chord_size"] = None
        app.backend.apply_chord(("chord", [first, app.GroupResult("inner", others)]), self.signature)


def test_tasks_of_a_group_within_a_chord_are_waited_for(app: Celery) -> None:
    header = Nested(app, 3)
    header.store(0, 1)
    header.returns(0, 1)
    assert header.called == [], "the last one may need the process that would wait for it"
    header.store(2)
    header.returns(2)
    assert header.called == [([0, [1, 2]],)]


def test_not_every_part_reads_the_ids_of_all_others(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    header = Header(Celery("tests", broker=file_url, backend=file_url), 5)
    header.signature["chord_size"] = None  # as Celery sends it
    restored, restore = list[str](), GroupResult.restore

    def counted(id: str, **options: Any) -> Any:
        restored.append(id)
        return restore(id, **options)

    monkeypatch.setattr(GroupResult, "restore", counted)
    header.store(*range(5))
    for number in range(5):
        header.returns(number)
        header.signature["chord_size"] = None
    assert header.called == [([0, 1, 2, 3, 4],)]
    assert restored == ["chord"] * 2  # for its size, and for its results


def test_a_part_that_runs_twice_counts_once_and_a_chord_is_joined_once(app: Celery) -> None:
    joined_once(app, 3)


def test_a_chord_with_leaves_is_joined_once(file_url: str) -> None:
    joined_once(Celery("tests", broker=file_url, backend=file_url), LEAF_PARTS + 8)


def joined_once(app: Any, size: int) -> None:
    header = Header(app, size)
    header.store(*range(size))
    header.returns(*range(size - 1), 0, size - 2)
    assert header.called == []
    header.send()  # whoever sent it was killed, and does it again
    header.returns(size - 1, size - 1, 0)
    header.send()
    header.returns(0, size - 1)
    assert header.called == [(list(range(size)),)]
    assert not any(app.backend.mget([f"chord-unlock-chord/{number}" for number in range(2)]))


@pytest.mark.parametrize("size", [3, LEAF_PARTS + 8])
def test_another_part_that_runs_again_meanwhile_does_not_call_the_body_too(file_url: str, size: int) -> None:
    header = Header(Celery("tests", broker=file_url, backend=file_url), size)

    def call(args: Any) -> None:
        header.called.append(args)
        header.returns(0)

    header.call = call  # type: ignore[method-assign] # in the middle of which a part comes again
    header.store(*range(size))
    header.returns(*range(size))
    assert len(header.called) == 1


@pytest.mark.parametrize("size", [3, LEAF_PARTS + 8])
def test_a_part_that_is_killed_while_it_calls_the_body_calls_it_when_it_runs_again(file_url: str, size: int) -> None:
    class Killed(BaseException):
        """As if its process were gone."""

    header = Header(Celery("tests", broker=file_url, backend=file_url), size)
    header.store(*range(size))
    header.returns(*range(size - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.kombu.backend.KeyValueStoreBackend.on_chord_part_return", raising(Killed))
        with pytest.raises(Killed):
            header.returns(size - 1)
    header.returns(0)  # it is not this one that calls it
    assert header.called == []
    header.returns(size - 1)
    assert len(header.called) == 1


def test_a_part_that_is_killed_before_it_is_counted_is_not_seen_to_be_done(file_url: str) -> None:
    """Celery acknowledges the task of a killed process when its result is there."""
    seen: list[str] = []
    app: Any = Celery("tests", broker=file_url, backend=file_url)
    header = Header(app, 2)
    parts = [Part(f"part {number}", header.signature) for number in range(2)]

    def counted(*given: Any, **options: Any) -> None:
        seen.append(app.backend.get_state("part 0"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.backend, "on_chord_part_return", counted)
        app.backend.mark_as_done("part 0", 0, parts[0])
    assert seen == [states.PENDING]
    for number, part in enumerate(parts):
        app.backend.mark_as_done(part.id, number, part)
    assert header.called == [([0, 1],)]
    assert app.backend.get_state("part 1") == states.SUCCESS


def raising(kind: type[BaseException]) -> Any:
    def fail(*given: Any, **options: Any) -> None:
        raise kind

    return fail


def test_parts_of_a_large_chord_return_from_everywhere_and_write_little(monkeypatch: pytest.MonkeyPatch) -> None:
    url, size, written = f"holdfast+memory://{uuid4().hex}", 1000, []
    header = Header(Celery("tests", broker=url, backend=url), size)
    values = link_to(url.removeprefix("holdfast+")).values
    put = type(values).put

    async def counted(self: Any, key: str, data: bytes, **options: Any) -> str | None:
        if key.startswith("chord-unlock"):
            written.append(len(data))
        return await put(self, key, data, **options)

    def part(number: int) -> None:
        header.store(number)
        header.returns(number, number)

    monkeypatch.setattr(type(values), "put", counted)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(part, range(size)))
    assert header.called == [(list(range(size)),)]
    assert sum(written) < size * LEAF_PARTS * 16  # a leaf for each part; some wrote again since another was faster


def test_a_backend_travels_by_its_url_and_hides_the_password(app: Celery) -> None:
    copy = pickle.loads(pickle.dumps(app.backend))
    app.backend.store_result("one", 1, states.SUCCESS)
    assert copy.get_state("one") == states.SUCCESS
    assert "secret" not in Backend(app, url="holdfast+postgresql://me:secret@host/db").as_uri()
