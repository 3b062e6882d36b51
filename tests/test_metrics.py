"""Metrics: what this process did, by name, as Prometheus reads it; and what queues hold, as `stats()` counts it."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast import metrics
from holdfast.testing.contract.base import eventually
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

NAMES = {
    *("holdfast_messages_enqueued", "holdfast_messages_completed", "holdfast_messages_retried"),
    *("holdfast_messages_dead", "holdfast_messages_recovered", "holdfast_leases_lost"),
    *("holdfast_schedule_slots_fired", "holdfast_schedule_slots_missed"),
    *("holdfast_message_wait_seconds", "holdfast_handler_duration_seconds"),
    *("holdfast_store_request_seconds", "holdfast_store_requests", "holdfast_worker_slots", "holdfast_build_info"),
}
OF_SERVE = {"holdfast_queue_messages", "holdfast_queue_oldest_age_seconds"}

Samples = dict[tuple[str, str, str], float]


def parsed(text: str) -> tuple[set[str], Samples]:
    """The families, and the samples by name, queue and state or kind."""
    names, samples = set(), {}
    for family in text_string_to_metric_families(text):
        names.add(family.name)
        for each in family.samples:
            labels = each.labels
            key = (each.name, labels.get("queue", ""), labels.get("state", "") or labels.get("le", ""))
            samples[key] = each.value
    return {name for name in names if not name.endswith("_created")}, samples


def fetched(address: str) -> tuple[set[str], Samples]:
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        return parsed(answer.read().decode())


async def test_events_are_counted_under_their_names() -> None:
    async with holdfast.connect("memory://") as broker:
        counted = metrics.Metrics(broker)
        queue = await broker.queue("jobs", retry=holdfast.Fixed(0))
        await queue.enqueue_many(range(4))
        one, two, three, lost = await queue.dequeue_many(4, lease=60)
        await one.complete()
        await two.fail("again")
        await three.kill("never")
        await lost.release()
        with pytest.raises(holdfast.LeaseLost):
            await lost.extend(5)
        names, samples = parsed(counted.text().decode())
        assert names == NAMES
        assert {key[0]: value for key, value in samples.items() if key[1] == "jobs" and key[0].endswith("_total")} == {
            "holdfast_messages_enqueued_total": 4,
            "holdfast_messages_completed_total": 1,
            "holdfast_messages_retried_total": 1,
            "holdfast_messages_dead_total": 1,
            "holdfast_leases_lost_total": 1,
        }
        assert samples["holdfast_handler_duration_seconds_count", "jobs", ""] == 1
        assert samples["holdfast_message_wait_seconds_count", "jobs", ""] == 1
        counted.close()
        await queue.enqueue(5)
        assert parsed(counted.text().decode())[1]["holdfast_messages_enqueued_total", "jobs", ""] == 4


async def test_a_process_serves_its_own_and_knows_its_slots() -> None:
    async with holdfast.connect("memory://") as broker:
        served = metrics.serve(broker, port=0)
        try:
            queue, gate = await broker.queue("jobs"), asyncio.Event()
            worker = queue.worker(_waiting(gate), concurrency=3)
            await worker.start()
            await queue.enqueue_many([1, 2])
            await eventually(lambda: worker.busy == 2)
            address = f"http://127.0.0.1:{served.port}"
            names, samples = await asyncio.to_thread(fetched, address)
            assert names == NAMES, "depth comes from serve alone"
            assert samples["holdfast_worker_slots", "", "busy"] == 2
            assert samples["holdfast_worker_slots", "", "idle"] == 1
            gate.set()
            await eventually(lambda: worker.busy == 0)
            await worker.stop()
        finally:
            served.close()
        with pytest.raises(holdfast.ConfigError, match="cannot serve metrics"):
            metrics.serve(broker, port=0, host="203.0.113.1")


def _waiting(gate: asyncio.Event):
    async def handle(value: int) -> None:
        await gate.wait()

    return handle


def test_the_server_tells_what_stats_tells(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        http = Http(server.address)
        queue = http.queue("jobs")
        http.post(f"{queue}/messages", {"messages": [{"value": n, "delay": 60 * (n % 2)} for n in range(6)]})
        [held] = http.post(f"{queue}/claims").body["deliveries"]
        http.post(f"{queue}/settlements", {"settlements": [{"receipt": held["receipt"]}]})
        stats = http.get(queue).body["stats"]
        names, samples = fetched(server.address)
        assert names == NAMES | OF_SERVE
        for state in metrics.STATES:
            assert samples["holdfast_queue_messages", "jobs", state] == stats[state], state
        assert stats["pending"] + stats["delayed"] + stats["archived"] == 6
        age = samples["holdfast_queue_oldest_age_seconds", "jobs", ""]
        assert stats["oldest_age"] <= age < stats["oldest_age"] + 60
        assert samples["holdfast_messages_enqueued_total", "jobs", ""] == 6
        with holdfast.sync.connect(server.address) as broker:
            broker.queue("jobs").enqueue(7)
        assert fetched(server.address)[1]["holdfast_messages_enqueued_total", "jobs", ""] == 6, "its client counts it"


def test_several_stores_have_a_label(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/a", f"file://{tmp_path}/b") as server:
        Http(f"{server.address}/store0").queue("jobs")
        text = urllib.request.urlopen(f"{server.address}/store0/metrics", timeout=30).read().decode()
        assert 'holdfast_queue_messages{queue="jobs",state="pending",store="store0"}' in text
        assert "jobs" not in urllib.request.urlopen(f"{server.address}/store1/metrics", timeout=30).read().decode()
        assert Http(server.address).get("/metrics").status == 404
