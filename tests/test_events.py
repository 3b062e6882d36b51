"""Events: who hears what, and that nobody feels a callback's failure."""

import asyncio
import logging

import pytest

from holdfast.errors import ConfigError
from holdfast.events import LEVELS, Emitter, Event


@pytest.fixture
def emitter():
    return Emitter()


def test_a_subscriber_hears_its_event_until_it_leaves(emitter):
    heard = []
    off = emitter.on("message.dead", heard.append)
    emitter.emit(Event("message.dead", {"queue": "q", "id": "1", "attempts": 3, "error": "boom"}))
    emitter.emit(Event("message.failed", {"queue": "q", "id": "2", "attempts": 3, "error": "boom"}))
    off()
    off()
    emitter.emit(Event("message.dead", {"queue": "q", "id": "3", "attempts": 3, "error": "boom"}))
    (event,) = heard
    assert event == {"queue": "q", "id": "1", "attempts": 3, "error": "boom"}
    assert (event.name, event.queue, event["id"]) == ("message.dead", "q", "1")
    with pytest.raises(AttributeError, match=r"message\.dead has no 'result'"):
        _ = event.result


def test_the_same_callback_twice_is_two_subscriptions(emitter):
    heard = []
    off = emitter.on("lease.lost", heard.append)
    emitter.on("lease.lost", heard.append)
    off()
    emitter.emit(Event("lease.lost", {"queue": "q", "id": "1"}))
    assert len(heard) == 1


def test_unknown_event(emitter):
    with pytest.raises(ConfigError, match=r"did you mean 'message\.completed'"):
        emitter.on("message.complete", print)
    with pytest.raises(ConfigError, match="unknown event"):
        emitter.on(["message.dead"], print)
    with pytest.raises(ConfigError, match="a callback is a function"):
        emitter.on("message.completed", None)


def test_nobody_listens_nobody_asks(emitter, caplog):
    caplog.set_level(logging.INFO, "holdfast")
    assert not emitter.wants("message.completed")
    off = emitter.on("message.completed", print)
    assert emitter.wants("message.completed")
    off()
    assert not emitter.wants("message.completed")
    caplog.set_level(logging.DEBUG, "holdfast")
    assert emitter.wants("message.completed")


def test_what_a_callback_raises_is_logged_not_felt(emitter, caplog):
    heard = []

    def bad(event):
        raise RuntimeError("callback broke")

    emitter.on("lease.lost", bad)
    emitter.on("lease.lost", heard.append)
    emitter.emit(Event("lease.lost", {"queue": "q", "id": "1"}))
    assert len(heard) == 1
    assert "callback broke" in caplog.text


async def test_async_callbacks(emitter, caplog):
    heard = []

    async def good(event):
        await asyncio.sleep(0)
        heard.append(event.id)

    async def bad(event):
        raise RuntimeError("callback broke")

    emitter.on("lease.lost", good)
    emitter.on("lease.lost", bad)
    emitter.emit(Event("lease.lost", {"queue": "q", "id": "1"}))
    await emitter.drain(5)
    assert heard == ["1"]
    assert "callback broke" in caplog.text


async def test_drain_ends_callbacks_that_never_end(emitter):
    ended = asyncio.Event()

    async def endless(event):
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    emitter.on("lease.lost", endless)
    emitter.emit(Event("lease.lost", {"queue": "q", "id": "1"}))
    await emitter.drain(0.01)
    await asyncio.wait_for(ended.wait(), 5)


def test_the_log_tells_every_event_but_no_results(emitter, caplog):
    caplog.set_level(logging.DEBUG, "holdfast")
    for event, level in LEVELS.items():
        caplog.clear()
        emitter.emit(Event(event, {"queue": "q", "id": "1", "result": "canary"}))
        (line,) = caplog.records
        assert (line.levelno, line.name) == (level, "holdfast.events")
        assert line.getMessage() == f"{event} queue=q id=1"


def test_the_log_tells_an_error_of_several_lines_last_and_in_one(emitter, caplog):
    with caplog.at_level(logging.WARNING, "holdfast"):
        said = {"queue": "q", "id": "1", "attempts": 1, "error": "ValueError: x\n  File a", "next_visible_at": "soon"}
        emitter.emit(Event("message.retry", said))
    assert caplog.messages == [
        "message.retry queue=q id=1 attempts=1 next_visible_at=soon error=ValueError: x\\n  File a"
    ]
