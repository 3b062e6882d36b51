"""Queues of processes that are gone are swept; events that nobody hears are not kept."""

from __future__ import annotations

import kombu
import pytest

from holdfast.kombu.channel import Channel
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


def test_a_worker_does_not_obey_what_was_said_while_it_was_not_there(file_url: str) -> None:
    """It would stop at once if somebody had stopped all workers meanwhile. Tasks in a queue of several stay."""
    box = kombu.Queue("worker.pidbox", FAN, auto_delete=True, expires=10.0)
    jobs = kombu.Queue("jobs", kombu.Exchange("jobs"), routing_key="jobs", auto_delete=True, expires=10.0)
    for word in ("stop", "ping"):
        with kombu.Connection(file_url) as connection:
            came = list[object]()
            channel = connection.channel()
            kombu.Producer(channel).publish(word, exchange=jobs.exchange, routing_key="jobs", declare=[jobs])
            with kombu.Consumer(channel, [box], on_message=lambda message, came=came: came.append(message.payload)):
                if word == "ping":
                    kombu.Producer(connection.channel()).publish(word, exchange=FAN)
                    while not came:
                        connection.drain_events(timeout=30)
                    assert came == ["ping"]
                    assert jobs(channel).queue_declare(passive=True).message_count == 2
        with kombu.Connection(file_url) as connection:
            kombu.Producer(connection).publish(word, exchange=FAN, declare=[FAN])
        close_all()  # as another process


def test_events_without_a_listener_are_not_kept(file_url: str) -> None:
    events = kombu.Exchange("celeryev", type="topic")
    with kombu.Connection(file_url) as connection:
        producer = kombu.Producer(connection)
        producer.publish({"type": "task-sent"}, exchange=events, routing_key="task.sent", declare=[events])
        assert names(file_url) == []


BOX = kombu.Queue("mine", FAN, auto_delete=True, expires=10.0)


def test_a_queue_of_one_process_goes_with_its_consumer(file_url: str) -> None:
    with kombu.Connection(file_url) as connection:
        for queue, no_ack in ((BOX, True), (kombu.Queue("mine", FAN, exclusive=True), False)):
            for ends in ("consumer", "channel"):
                channel = connection.channel()
                consumer = kombu.Consumer(channel, [queue], no_ack=no_ack)
                consumer.consume()
                assert names(file_url) == ["mine"]
                (consumer.cancel if ends == "consumer" else channel.close)()
                assert names(file_url) == []


def test_a_queue_that_others_may_consume_stays(file_url: str) -> None:
    with kombu.Connection(file_url) as connection:
        channel = connection.channel()
        kombu.Consumer(channel, [BOX], no_ack=False).consume()
        channel.close()
        assert names(file_url) == ["mine"]


def test_another_channel_of_the_connection_hears_again(file_url: str) -> None:
    """As a worker whose mailbox had a fault."""
    with kombu.Connection(file_url) as connection:
        for ends in ("consumer", "channel"):
            channel, came = connection.channel(), list[object]()
            consumer = kombu.Consumer(
                channel, [BOX], no_ack=True, on_message=lambda message, came=came: came.append(message.payload)
            )
            consumer.consume()
            kombu.Producer(connection).publish(ends, exchange=FAN)
            while not came:
                connection.drain_events(timeout=30)
            assert came == [ends]
            (consumer.cancel if ends == "consumer" else channel.close)()


def test_a_queue_that_goes_while_somebody_publishes_is_not_made_again(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kombu.Connection(file_url) as connection:
        consumer = kombu.Consumer(connection, [BOX], no_ack=True)
        consumer.consume()
        producer = kombu.Producer(connection.channel())
        producer.publish("heard", exchange=FAN)
        table = producer.channel.get_table(FAN.name)
        consumer.cancel()
        monkeypatch.setattr(Channel, "get_table", lambda channel, exchange: table)
        producer.publish("too late", exchange=FAN)
        assert names(file_url) == []
