"""OpenTelemetry: one trace from the producer to the handler, also in another process, and the standard metrics."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.trace import SpanKind, StatusCode

import holdfast
from holdfast import limits, otel
from holdfast.errors import ConfigError, LeaseLost
from holdfast.testing.contract.base import eventually
from tests import ROOT


class Watched:
    """Providers of a test, and what they were told."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics], shutdown_on_exit=False)

    def instrument(self, target: Any) -> None:
        otel.instrument(target, tracer_provider=self.tracers, meter_provider=self.meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def names(self) -> list[str]:
        return [span.name for span in self._spans.get_finished_spans()]

    def points(self) -> dict[str, list[Any]]:
        data = self._metrics.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}

    def span(self, name: str) -> Any:
        return self.tracers.get_tracer("test").start_as_current_span(name)


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


WORKER = """
import asyncio, json, sys
import holdfast
from holdfast import otel
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)  # as programs do it
app = holdfast.App(sys.argv[1])
otel.instrument(app)

@app.handler("orders")
def handle(value):  # in a thread
    with provider.get_tracer("handler").start_as_current_span("own work"):
        return value

async def main():
    async with app:
        [worker] = await app.workers()
        async with worker:
            queue = await app.queue("orders")
            record = await queue.wait(sys.argv[2], timeout=30)
            assert record.status == "completed", record
    for span in exporter.get_finished_spans():
        parent = span.parent and f"{span.parent.span_id:016x}"
        links = [f"{link.context.span_id:016x}" for link in span.links]
        context = span.get_span_context()
        print(json.dumps([span.name, f"{context.trace_id:032x}", f"{context.span_id:016x}", parent, links]))

asyncio.run(main())
"""


async def test_one_trace_goes_from_the_producer_to_a_handler_in_another_process(
    watched: Watched, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/store"
    async with holdfast.connect(url) as broker:
        watched.instrument(broker)
        orders = await broker.queue("orders")
        with watched.span("request"):
            id = await orders.enqueue({"order": 1})
    [request], [send] = watched.spans("request"), watched.spans("send orders")
    assert send.parent.span_id == request.context.span_id

    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, program, url, id], env=env, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    found = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert set(found) == {"receive orders", "process orders", "own work", "settle orders"}
    theirs, ours = f"{send.context.trace_id:032x}", f"{send.context.span_id:016x}"
    process = found["process orders"]
    assert process[0] == theirs
    assert process[2] == ours
    assert process[3] == [ours]
    assert found["own work"][0] == theirs
    assert found["own work"][2] == process[1]
    assert found["settle orders"][0] == theirs
    assert found["receive orders"][3] == [ours]


async def test_spans_and_metrics_have_the_names_of_the_conventions(watched: Watched) -> None:
    async with holdfast.connect("memory://") as broker:
        watched.instrument(broker)
        jobs = await broker.queue("jobs", max_attempts=1)

        async def handle(value: int) -> None:
            if value == 2:
                raise ValueError("bad")

        first, second = await jobs.enqueue(1), await jobs.enqueue(2)
        async with jobs.worker(handle):
            await jobs.wait(first, timeout=10)
            await jobs.wait(second, timeout=10)
            await eventually(lambda: len(watched.spans("process jobs")) == 2)
        kinds = {span.name.split()[0]: span.kind for span in watched._spans.get_finished_spans()}
        assert kinds == {
            "send": SpanKind.PRODUCER, "receive": SpanKind.CLIENT,
            "process": SpanKind.CONSUMER, "settle": SpanKind.CLIENT,
        }  # fmt: skip
        sent = watched.spans("send jobs")[0]
        assert sent.attributes == {
            messaging_attributes.MESSAGING_SYSTEM: "holdfast",
            messaging_attributes.MESSAGING_OPERATION_NAME: "send",
            messaging_attributes.MESSAGING_OPERATION_TYPE: "send",
            messaging_attributes.MESSAGING_DESTINATION_NAME: "jobs",
            messaging_attributes.MESSAGING_MESSAGE_ID: first,
        }
        failed = next(
            span for span in watched.spans("process jobs") if span.attributes["messaging.message.id"] == second
        )
        assert failed.attributes["error.type"] == "ValueError"
        assert failed.status.status_code is StatusCode.ERROR
        [event] = failed.events
        assert event.attributes["exception.message"] == "bad"
        [settled] = {span.attributes.get("error.type") for span in watched.spans("settle jobs")}
        assert settled is None

    points = watched.points()
    assert set(points) == {
        messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION,
        messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES,
        messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES,
        messaging_metrics.MESSAGING_PROCESS_DURATION,
    }
    assert sum(point.value for point in points["messaging.client.sent.messages"]) == 2
    assert sum(point.value for point in points["messaging.client.consumed.messages"]) == 2
    ran = {point.attributes.get("error.type"): point.count for point in points["messaging.process.duration"]}
    assert ran == {None: 1, "ValueError": 1}
    operations = {
        point.attributes["messaging.operation.name"] for point in points["messaging.client.operation.duration"]
    }
    assert operations == {"send", "receive", "settle"}


async def test_batches_are_linked_to_each_producer_and_counted(watched: Watched) -> None:
    async with holdfast.connect("memory://") as broker:
        watched.instrument(broker)
        jobs = await broker.queue("jobs")
        with watched.span("one"):
            await jobs.enqueue_many([1, 2])
        with watched.span("two"):
            await jobs.enqueue(holdfast.Message(3, headers={"tenant": "a"}))
        one, two = watched.spans("send jobs")
        assert one.attributes["messaging.batch.message_count"] == 2
        seen: list[list[int]] = []
        async with jobs.worker(seen.append, batch=3, concurrency=1):
            await eventually(lambda: sum(map(len, seen)) == 3)
        assert seen == [[1, 2, 3]]
        [process] = watched.spans("process jobs")
        assert process.attributes["messaging.batch.message_count"] == 3
        assert process.parent is None
        linked = [link.context.span_id for link in process.links]
        assert linked == [one.context.span_id, one.context.span_id, two.context.span_id]
        [settle] = watched.spans("settle jobs")
        assert [link.context.span_id for link in settle.links] == linked


async def test_who_dequeues_continues_the_trace(watched: Watched) -> None:
    async with holdfast.connect("memory://") as broker:
        watched.instrument(broker)
        jobs = await broker.queue("jobs")
        await jobs.enqueue(1, headers={"tenant": "a"})
        assert await jobs.dequeue() is not None
        delivery = await (await broker.queue("jobs")).dequeue()
        assert delivery is None
        await jobs.enqueue(2)
        delivery = await jobs.dequeue()
        sent = watched.spans("send jobs")[1]
        with watched.tracers.get_tracer("t").start_as_current_span("mine", context=otel.context_of(delivery.headers)):
            await delivery.complete()
        [mine], [settle] = watched.spans("mine"), watched.spans("settle jobs")
        assert mine.parent.span_id == sent.context.span_id
        assert settle.parent.span_id == mine.context.span_id
        with pytest.raises(LeaseLost):
            await jobs.complete(_other(delivery))
        assert watched.spans("settle jobs")[-1].attributes["error.type"] == "LeaseLost"
        assert len(watched.spans("receive jobs")) == 2  # a look that finds nothing has no span


def _other(delivery: holdfast.Delivery[Any]) -> str:
    from holdfast.deliveries import Lease, write_receipt

    return write_receipt(Lease(delivery.id, "another", 1, 5))


async def test_a_header_of_the_sender_stays_and_full_headers_are_left_alone(watched: Watched) -> None:
    async with holdfast.connect("memory://") as broker:
        watched.instrument(broker)
        jobs = await broker.queue("jobs")
        own = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
        full = {"a": "x" * (limits.HEADERS_BYTES - 1)}
        await jobs.enqueue(1, headers=own)
        await jobs.enqueue(2, headers=full)
        await jobs.enqueue(3, headers={"traceparent": "rubbish"})
        assert [each.headers for each in await jobs.dequeue_many(3)] == [own, full, {"traceparent": "rubbish"}]
        [receive] = watched.spans("receive jobs")
        assert [f"{link.context.trace_id:032x}" for link in receive.links] == ["1" * 32]


async def test_an_error_of_the_store_is_an_error_of_the_span(watched: Watched) -> None:
    async with holdfast.connect("memory://") as broker:
        watched.instrument(broker)
        jobs = await broker.queue("jobs")
        await broker.delete_queue("jobs")
        with pytest.raises(holdfast.QueueNotFound):
            await jobs.enqueue(1)
        with pytest.raises(holdfast.QueueNotFound):
            await jobs.dequeue()
        names = {span.name: span.attributes["error.type"] for span in watched._spans.get_finished_spans()}
        assert names == dict.fromkeys(("send jobs", "receive jobs"), "holdfast.errors.QueueNotFound")


def test_the_blocking_face_keeps_the_callers_trace(watched: Watched) -> None:
    with holdfast.sync.connect("memory://") as broker:
        watched.instrument(broker)
        jobs = broker.queue("jobs")
        with watched.span("request"):
            jobs.enqueue(1)
        [request], [send] = watched.spans("request"), watched.spans("send jobs")
        assert send.parent.span_id == request.context.span_id
    assert not trace.get_current_span().get_span_context().is_valid


def test_what_is_no_broker_is_refused() -> None:
    with pytest.raises(ConfigError, match="a broker or an app"):
        otel.instrument(object())
