"""Queues of processes that are gone are swept; events that nobody hears are not kept."""

from __future__ import annotations

import kombu
import pytest

from holdfast.kombu.link import Link, close_all, link_to

pytestmark = pytest.mark.timeout(180)  # the first test of a store starts its server

FAN = kombu.Exchange("celery.pidbox", type="fanout")


def names(url: str) -> list[str]:
    link = link_to(url.removeprefix("holdfast+"))
    return sorted(info.name for info in link.run(link.broker.queues()))


def test_queues_of_the_gone_are_swept_and_those_in_use_stay(url: str) -> None:
    if "memory" in url:
        return  # it ends with its process
    for name in ("gone.reply", "lasting"):
        with kombu.Connection(url) as connection:
            kombu.Queue(name, FAN, auto_delete=name != "lasting")(connection.channel()).declare()
    close_all()  # as another process
    with kombu.Connection(url) as connection:
        kombu.Queue("here.reply", FAN, auto_delete=True)(connection.channel()).declare()
        link = link_to(url.removeprefix("holdfast+"))
        assert link.run(link.routing.sweep()) == []  # an hour has not passed
        assert link.run(link.routing.sweep(gone_after=0.0)) == ["gone.reply"]
        assert names(url) == ["here.reply", "lasting"]
        bound = {each.queue for each in link.run(link.routing.table("celery.pidbox"))}
        assert bound == {"here.reply", "lasting"}


def test_a_queue_that_was_swept_while_its_process_slept_comes_back_with_its_bindings(file_url: str) -> None:
    """A computer that sleeps for hours: whoever wakes up first takes the others for gone."""
    other = Link(file_url.removeprefix("holdfast+"))
    with kombu.Connection(file_url) as connection:
        queue, came = kombu.Queue("here.pidbox", FAN, auto_delete=True), list[object]()
        with kombu.Consumer(connection, [queue], on_message=lambda message: came.append(message.payload)):
            assert other.run(other.routing.sweep(gone_after=0.0)) == ["here.pidbox"]
            link = link_to(file_url.removeprefix("holdfast+"))
            link.run(link.routing.sweep())  # its own next round
            kombu.Producer(connection.channel()).publish("ping", exchange=FAN)
            while not came:
                connection.drain_events(timeout=30)
    assert came == ["ping"]
    other.close()


def test_events_without_a_listener_are_not_kept(file_url: str) -> None:
    events = kombu.Exchange("celeryev", type="topic")
    with kombu.Connection(file_url) as connection:
        producer = kombu.Producer(connection)
        producer.publish({"type": "task-sent"}, exchange=events, routing_key="task.sent", declare=[events])
        assert names(file_url) == []


def test_a_temporary_queue_goes_with_its_consumer(file_url: str) -> None:
    with kombu.Connection(file_url) as connection:
        queue = kombu.Queue("mine", FAN, auto_delete=True)
        channel = connection.channel()
        consumer = kombu.Consumer(channel, [queue])
        consumer.consume()
        assert names(file_url) == ["mine"]
        channel.close()
        assert names(file_url) == []
