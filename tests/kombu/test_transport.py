"""What kombu's own classes find behind a URL of ours, on every kind of store."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest
from kombu.exceptions import ChannelError, OperationalError
from kombu.utils.json import loads

import holdfast
from holdfast.errors import ConfigError
from holdfast.kombu.link import ATTEMPTS, close_all, link_to
from holdfast.kombu.names import queue_name
from holdfast.kombu.requeue import requeue
from tests.servers.serving import ServerProcess

pytestmark = pytest.mark.timeout(180)  # the first test of a store starts its server

PATIENCE_S = 10.0


class Taken:
    """What a consumer got."""

    def __init__(self, connection: kombu.Connection, *queues: kombu.Queue, **options: Any) -> None:
        self.messages: list[Any] = []
        self._connection = connection
        self.consumer = kombu.Consumer(connection, list(queues), on_message=self.messages.append, **options)

    def until(self, count: int) -> list[Any]:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.messages) < count:
            assert time.monotonic() < deadline, f"only {len(self.messages)} of {count} came"
            try:
                self._connection.drain_events(timeout=0.2)
            except TimeoutError:
                pass
        return [message.payload for message in self.messages]


def stats(connection: kombu.Connection, queue: str) -> Any:
    link = link_to(str(connection.hostname))

    async def ask() -> Any:
        await link.held.settled()
        return await (await link.queue(queue)).stats()

    return link.run(ask())


def publish(connection: kombu.Connection, queue: kombu.Queue, body: Any, **options: Any) -> None:
    producer = kombu.Producer(connection)
    producer.publish(body, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue], **options)


JOBS = kombu.Queue("jobs", kombu.Exchange("jobs"), routing_key="jobs")


def test_what_is_published_comes_by_priority_and_an_ack_completes_it(url: str) -> None:
    with kombu.Connection(url) as connection:
        for number, priority in enumerate([0, 0, 9, 5]):
            publish(connection, JOBS, {"number": number}, priority=priority, headers={"ä": "ö"})
        taken = Taken(connection, JOBS)
        with taken.consumer:
            assert [body["number"] for body in taken.until(4)] == [2, 3, 0, 1]
            assert taken.messages[0].headers["ä"] == "ö"
            assert stats(connection, "jobs").processing == 4
            for message in taken.messages:
                message.ack()
        after = stats(connection, "jobs")
        assert (after.total, after.dead) == (0, 0)


def test_what_is_no_property_of_a_message_does_not_hinder_it(file_url: str) -> None:
    """As with RabbitMQ: a handler of Celery's signal may publish all that the signal has told it."""
    with kombu.Connection(file_url) as connection:
        publish(connection, JOBS, 1, signal=object(), correlation_id="mine")
        message = JOBS(connection.channel()).get()
        assert message is not None
        assert "signal" not in message.properties
        assert message.properties["correlation_id"] == "mine"


def test_a_reject_is_a_dead_letter_and_a_requeue_comes_again(url: str) -> None:
    with kombu.Connection(url) as connection:
        publish(connection, JOBS, "bad")
        taken = Taken(connection, JOBS)
        with taken.consumer:
            taken.until(1)
            first = taken.messages.pop()
            assert not first.delivery_info.get("redelivered")
            first.requeue()
            taken.until(1)
            again = taken.messages.pop()
            assert again.delivery_info["redelivered"], "whoever gets it must see that it came before"
            again.reject()
        after = stats(connection, "jobs")
        assert (after.pending, after.processing, after.dead) == (0, 0, 1)


def test_what_is_published_after_a_requeue_finds_it_done(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slowly(*given: Any) -> Any:
        await asyncio.sleep(0.5)
        return await requeue(*given)

    monkeypatch.setattr("holdfast.kombu.held.requeue", slowly)
    with kombu.Connection(file_url) as connection:
        publish(connection, JOBS, "again")
        taken = Taken(connection, JOBS, prefetch_count=1)
        with taken.consumer:
            taken.until(1)
            taken.consumer.cancel()
            taken.messages[0].requeue()
            publish(connection, JOBS, "new")
            link = link_to(str(connection.hostname))
            queue = link.run(link.queue("jobs"))
            assert [loads(record.value).get("redelivered") for record in link.run(queue.peek())] == [True, None]


def test_a_consumer_holds_no_more_than_it_may_and_gives_back_what_it_did_not_get(url: str) -> None:
    with kombu.Connection(url) as connection:
        for number in range(5):
            publish(connection, JOBS, number)
        taken = Taken(connection, JOBS, prefetch_count=2)
        with taken.consumer:
            assert taken.until(2) == [0, 1]
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.3)
            assert stats(connection, "jobs").processing == 2
            taken.messages[0].ack()
            assert taken.until(3) == [0, 1, 2]
        connection.close()
        after = stats(kombu.Connection(url), "jobs")
        assert (after.total, after.processing) == (4, 0)


def test_a_full_queue_does_not_keep_the_others_waiting(file_url: str) -> None:
    queues = [kombu.Queue(name, kombu.Exchange("jobs"), routing_key=name) for name in ("a", "b", "c")]
    with kombu.Connection(file_url) as connection:
        for number in range(3):
            for queue in queues:
                publish(connection, queue, f"{queue.name}{number}")
        taken = Taken(connection, *queues, prefetch_count=1)
        with taken.consumer:
            for count in range(1, 10):
                taken.until(count)
                taken.messages[-1].ack()
        assert [message.payload for message in taken.messages] == [f"{each}{n}" for n in range(3) for each in "abc"]


def test_control_comes_before_work_that_is_there_too(file_url: str) -> None:
    fan = kombu.Exchange("celery.pidbox", type="fanout")
    with kombu.Connection(file_url) as connection:
        came: list[Any] = []
        channels = [connection.channel(), connection.channel()]
        box = kombu.Queue("here", fan, auto_delete=True, expires=10.0, no_ack=True)
        for channel, queue in zip(channels, (JOBS, box), strict=True):
            kombu.Consumer(channel, [queue], on_message=lambda message: came.append(message.payload)).consume()
        publish(connection, JOBS, "work")
        kombu.Producer(connection).publish("revoke", exchange=fan, declare=[fan])
        deadline = time.monotonic() + PATIENCE_S
        while not all(len(channel._feed) for channel in channels):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        connection.drain_events(timeout=10)
        assert came == ["revoke", "work"]


def test_exchanges_route_to_queues_of_other_connections(url: str) -> None:
    fan, topic = kombu.Exchange("fan", type="fanout"), kombu.Exchange("news", type="topic")
    first, second = kombu.Queue("odd name @1", fan), kombu.Queue("second", fan)
    sport = kombu.Queue("sport", topic, routing_key="sport.#")
    with kombu.Connection(url) as here, kombu.Connection(url) as there:
        for queue in (first, second, sport):
            queue(there.channel()).declare()
        producer = kombu.Producer(here)
        producer.publish("to both", exchange=fan, declare=[fan])
        producer.publish("goal", exchange=topic, routing_key="sport.football", declare=[topic])
        producer.publish("vote", exchange=topic, routing_key="politics", declare=[topic])
        taken = Taken(there, first, second, sport, no_ack=True)
        with taken.consumer:
            assert sorted(taken.until(3)) == ["goal", "to both", "to both"]
        assert [stats(there, queue.name).total for queue in (first, second, sport)] == [0, 0, 0]


def test_a_task_with_an_eta_waits_in_the_store(url: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    with kombu.Connection(url) as connection:
        publish(connection, JOBS, [], headers={"task": "t", "eta": due.isoformat()})
        publish(connection, JOBS, [], headers={"task": "t", "eta": None})
        found = stats(connection, "jobs")
        assert (found.delayed, found.pending) == (1, 1)


def test_what_has_outlived_its_time_is_dropped(file_url: str) -> None:
    with kombu.Connection(file_url) as connection:
        publish(connection, JOBS, "old", expiration=0.2)
        time.sleep(0.3)  # the store's own clock must pass
        publish(connection, JOBS, "new", expiration=60)
        taken = Taken(connection, JOBS, no_ack=True)
        with taken.consumer:
            assert taken.until(1) == ["new"]


def test_what_has_outlived_the_time_of_its_queue_is_dropped(file_url: str) -> None:
    brief = kombu.Queue("brief", kombu.Exchange("brief"), routing_key="brief", message_ttl=0.2)
    with kombu.Connection(file_url) as connection:
        publish(connection, brief, "old")
        time.sleep(0.3)  # the store's own clock must pass
        taken = Taken(connection, brief, no_ack=True)
        with taken.consumer, pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.5)
        assert taken.messages == []
        assert stats(connection, "brief").total == 0


def test_queues_are_counted_purged_and_deleted(url: str) -> None:
    with kombu.Connection(url) as connection:
        channel = connection.channel()
        bound = JOBS(channel)
        publish(connection, JOBS, 1)
        publish(connection, JOBS, 2)
        assert bound.queue_declare(passive=True).message_count == 2
        assert bound.purge() == 2
        assert bound.get() is None
        publish(connection, JOBS, 3)
        message = bound.get()
        assert message.payload == 3
        message.ack()
        bound.delete()
        with pytest.raises(ChannelError):
            bound.queue_declare(passive=True)
        kombu.Producer(connection).publish("nobody", exchange=JOBS.exchange, routing_key="jobs")
        with pytest.raises(ChannelError):
            bound.queue_declare(passive=True)  # no binding is left, so nothing was made


def test_a_queue_that_somebody_else_deleted_is_made_again(file_url: str) -> None:
    with kombu.Connection(file_url) as connection:
        taken = Taken(connection, JOBS, no_ack=True)
        with taken.consumer:
            publish(connection, JOBS, 1)
            taken.until(1)
            with holdfast.sync.connect(file_url.removeprefix("holdfast+")) as operator:
                operator.delete_queue("jobs", force=True)
            publish(connection, JOBS, 2)
            assert taken.until(2) == [1, 2]


def test_a_long_consumer_keeps_what_it_holds(url: str) -> None:
    with kombu.Connection(url, transport_options={"lease": 1.0}) as connection:
        publish(connection, JOBS, "long")
        taken = Taken(connection, JOBS)
        with taken.consumer, kombu.Connection(url, transport_options={"lease": 1.0}) as other:
            taken.until(1)
            second = Taken(other, JOBS)
            with second.consumer, pytest.raises(TimeoutError):
                other.drain_events(timeout=2.5)
            taken.messages[0].ack()
        assert stats(connection, "jobs").total == 0


def test_what_a_gone_holder_had_comes_again_after_its_lease(file_url: str) -> None:
    """As if its process had been killed: nobody renews, nobody says a word."""
    with kombu.Connection(file_url) as connection:
        publish(connection, JOBS, "once more")
        with holdfast.sync.connect(file_url.removeprefix("holdfast+")) as gone:
            assert gone.queue("jobs", bytes).dequeue(lease=0.5) is not None
        taken = Taken(connection, JOBS)
        with taken.consumer:
            taken.until(1)
            assert taken.messages[0].delivery_info["redelivered"] is True
            taken.messages[0].ack()


def test_an_ack_is_said_again_until_the_store_is_back(tmp_path: Path) -> None:
    with ServerProcess(f"file://{tmp_path / 'store'}") as server:
        url = f"{server.address}?operation_timeout=1"
        with holdfast.sync.connect(url) as broker:
            broker.queue("jobs", bytes, lease=0.5, max_attempts=ATTEMPTS, archive=False)
        with kombu.Connection(f"holdfast+{url}", transport_options={"lease": 20.0}) as connection:
            publish(connection, JOBS, "done")
            taken = Taken(connection, JOBS)
            with taken.consumer:
                taken.until(1)
                server.kill()
                taken.messages[0].ack()
                time.sleep(2)  # several times the queue's own lease, for which it is said at least
                server.start()
                assert stats(connection, "jobs").total == 0
        close_all()  # before its server


def test_a_store_that_is_not_there_is_a_connection_error() -> None:
    connection = kombu.Connection("holdfast+nats://127.0.0.1:1?connect_timeout=0.2")
    with pytest.raises(OperationalError):
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=5)


def test_bad_options_are_refused(file_url: str) -> None:
    with pytest.raises(ConfigError, match="lease"):
        kombu.Connection(file_url, transport_options={"lease": 0}).connect()


def test_without_the_import_a_class_path_will_do(file_url: str) -> None:
    plain = file_url.removeprefix("holdfast+")
    with kombu.Connection(plain, transport="holdfast.kombu:Transport") as connection:
        publish(connection, JOBS, 1)
        assert stats(connection, "jobs").pending == 1


@pytest.mark.parametrize("name", ["celery", "a.b-c_d"])
def test_names_that_fit_stay(name: str) -> None:
    assert queue_name(name) == name


def test_other_names_get_one_of_their_own() -> None:
    names = ["celery@host.celery.pidbox", "celery host.celery.pidbox", "", "-x", "q--x", "x" * 300, "ä"]
    made = [queue_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert all(holdfast.config.queue_name(name) == name for name in made)
