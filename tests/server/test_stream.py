"""Events as a stream: counts of queues, what clients do, and its end."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.events import Event
from holdfast.server.stream import _Listener
from holdfast.server.tokens import Holder
from holdfast.stores.base import PAGE_ROWS
from holdfast.stores.records import Stats
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

Told = tuple[str, dict[str, Any]]


class Listening:
    """A client that reads a stream."""

    def __init__(self, address: str, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
        self._connection.request("GET", path, headers=headers)
        self.answer = self._connection.getresponse()
        self.told: list[Told] = []

    def until(self, holds: Callable[[Told], bool]) -> dict[str, Any]:
        """The first that fits."""
        deadline, name = time.monotonic() + 30, ""
        while time.monotonic() < deadline:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                self.told.append((name, json.loads(line.removeprefix("data: "))))
                if holds(self.told[-1]):
                    return self.told[-1][1]
        raise AssertionError(self.told)

    def rest(self) -> bytes:
        return self.answer.read()

    def close(self) -> None:
        self._connection.close()


@contextmanager
def listening(address: str, path: str = "/api/v1/events", **headers: str) -> Iterator[Listening]:
    made = Listening(address, path, **headers)
    try:
        yield made
    finally:
        made.close()


def counts(queue: str, **wanted: int) -> Callable[[Told], bool]:
    def holds(told: Told) -> bool:
        name, fields = told
        return name == "counts" and fields["queue"] == queue and wanted.items() <= fields.items()

    return holds


def test_counts_come_first_and_when_they_change_whoever_did_it(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    with holdfast.sync.connect(url) as broker:
        broker.queue("emails").enqueue_many([1, 2])
        with ServerThread(url) as server, listening(server.address) as stream:
            assert stream.answer.headers["content-type"].startswith("text/event-stream")
            first = stream.until(counts("emails", pending=2))
            assert first["dead"] == 0
            broker.queue("emails").enqueue(3)  # by another process than the server
            stream.until(counts("emails", pending=3))
            broker.delete_queue("emails", force=True)
            assert stream.until(lambda told: told[0] == "deleted") == {"queue": "emails"}


def test_what_clients_do_is_told_as_it_happens_without_results() -> None:
    with ServerThread("memory://") as server, listening(server.address) as stream:
        api = Http(server.address)
        queue = api.queue("jobs")
        stream.until(counts("jobs"))  # it listens
        [id] = api.post(f"{queue}/messages", {"value": 1}).body["ids"]
        assert stream.until(lambda told: told[0] == "message.enqueued") == {"queue": "jobs", "id": id}
        [held] = api.post(f"{queue}/claims").body["deliveries"]
        api.post(f"{queue}/settlements", {"settlements": [{"receipt": held["receipt"], "result": "hidden"}]})
        done = stream.until(lambda told: told[0] == "message.completed")
        assert (done["id"], done["attempts"]) == (id, 1)
        assert "result" not in done


def test_only_queues_that_are_asked_for_and_reached() -> None:
    tokens = ("all:admin:" + "a" * 20, "mine:read:mine*:" + "m" * 20)
    with ServerThread("memory://", tokens=tokens) as server:
        admin = Http(server.address, authorization=f"Bearer {'a' * 20}")
        for queue in ("mine", "mine-too", "theirs"):
            admin.post(f"{admin.queue(queue)}/messages", {"value": 1})
        bearer = f"Bearer {'m' * 20}"
        with listening(server.address, authorization=bearer) as stream:
            stream.until(counts("mine-too", pending=1))
            assert {fields["queue"] for _, fields in stream.told} == {"mine", "mine-too"}
        path = "/api/v1/events?queue=mine-too&queue=theirs"
        with listening(server.address, path, authorization=bearer) as stream:
            stream.until(counts("mine-too", pending=1))
            admin.post("/api/v1/queues/mine/messages", {"value": 2})
            admin.post("/api/v1/queues/mine-too/messages", {"value": 2})
            stream.until(counts("mine-too", pending=2))
            assert {fields["queue"] for _, fields in stream.told} == {"mine-too"}
        assert Http(server.address).get("/api/v1/events").status == 401


def test_the_stream_ends_with_the_server_and_a_client_that_goes_is_forgotten() -> None:
    with ServerThread("memory://") as server:
        with listening(server.address) as stream:
            Http(server.address).queue("jobs")
            stream.until(counts("jobs"))
        with listening(server.address) as stream:
            stream.until(counts("jobs"))
            server.serving.stop()
            assert stream.rest().count(b"event: ") <= 1  # it ended, and did not break


@pytest.fixture
def listener() -> _Listener:
    return _Listener(Holder("n", "read", ()), frozenset())


async def test_a_client_that_does_not_read_loses_events_and_is_told() -> None:
    listener = _Listener(Holder("n", "read", ()), frozenset())
    for number in range(PAGE_ROWS + 5):
        listener.hear(Event("lease.lost", {"queue": "q", "id": str(number)}))
    lines = listener.lines()
    assert len(lines) == PAGE_ROWS + 1
    assert lines[-1] == b'event: dropped\ndata: {"count":5}\n\n'
    assert listener.lines() == []


async def test_a_store_that_is_away_is_told_once_and_all_counts_afterwards(listener: _Listener) -> None:
    assert len(listener.changed({"a": Stats(pending=1)})) == 1
    assert listener.changed({"a": Stats(pending=1, oldest_age=5.0)}) == []
    assert listener.away("no answer") == [b'event: unavailable\ndata: {"detail":"no answer"}\n\n']
    assert listener.away("no answer") == []
    assert len(listener.changed({"a": Stats(pending=1)})) == 1
