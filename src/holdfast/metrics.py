"""Numbers for Prometheus: what this process did, by its events. Needs the extra `server`.

Counters and histograms come from every process, so that their sums are right; `holdfast serve` adds what a queue holds,
which is the same in every process. Labels never have ids or tenants in them.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from . import ids
from .errors import ConfigError
from .events import Callback, Event

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from .stores.base import QueueInfo
    from .stores.records import Stats

DEFAULT_PORT = 9464  # of exporters that OpenTelemetry starts
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("pending", "delayed", "processing", "retry", "dead", "archived")
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 3600)  # from a quick claim to a long wait
_COUNTED = {
    "message.enqueued": ("holdfast_messages_enqueued", "Messages that this process added."),
    "message.completed": ("holdfast_messages_completed", "Messages that this process completed."),
    "message.retry": ("holdfast_messages_retried", "Attempts that failed here and are tried again."),
    "message.dead": ("holdfast_messages_dead", "Messages that ended here as dead letters."),
    "message.recovered": ("holdfast_messages_recovered", "Messages taken up here after a lease had expired."),
    "lease.lost": ("holdfast_leases_lost", "Leases that this process lost."),
    "schedule.fired": ("holdfast_schedule_slots_fired", "Slots of schedules that this process made messages of."),
    "schedule.missed": ("holdfast_schedule_slots_missed", "Slots of schedules that will not fire, as seen here."),
}


class Watched(Protocol):
    """A broker, which stands above this."""

    def on(self, event: str, callback: Callback) -> Callable[[], None]: ...

    @property
    def store(self) -> Any: ...

    @property
    def workers(self) -> Iterable[Any]: ...


class Metrics:
    """Of one broker, from now on. `labels` are put on every line, such as `store`."""

    def __init__(self, broker: Watched, labels: Mapping[str, str] | None = None) -> None:
        client = _client()
        self._labels = dict(labels or {})
        self._registry = client.CollectorRegistry()
        names = [*self._labels, "queue"]
        self._counters = {
            event: client.Counter(name, text, names, registry=self._registry)
            for event, (name, text) in _COUNTED.items()
        }
        self._waits = self._histogram("holdfast_message_wait_seconds", "From the enqueueing to the first claim.", names)
        self._runs = self._histogram("holdfast_handler_duration_seconds", "From the claim to the outcome.", names)
        self._requests = self._histogram(
            "holdfast_store_request_seconds", "Calls to the store.", [*self._labels, "kind"]
        )
        self._registry.register(_Now(self))
        self._ends: list[Callable[[], None]] = []
        self.follow(broker)

    def follow(self, broker: Watched) -> None:
        """This one from now on: the store was opened again."""
        self.close()
        self._broker = broker
        self._ends = [broker.on(event, self._count) for event in _COUNTED]
        self._ends.append(broker.on("message.completed", self._measure))

    def _histogram(self, name: str, text: str, labels: list[str]) -> Any:
        return _client().Histogram(name, text, labels, registry=self._registry, buckets=_SECONDS)

    def _count(self, event: Event) -> None:
        self._counters[event.name].labels(**self._labels, queue=event.queue).inc(event.get("count", 1))

    def _measure(self, event: Event) -> None:
        """A receipt does not know how long its attempt ran; the id of a message says when it was made."""
        if event.duration is None:
            return
        labels = {**self._labels, "queue": event.queue}
        self._runs.labels(**labels).observe(event.duration)
        number = ids.number(event.id)
        if event.attempts == 1 and number is not None:
            waited = time.time() - event.duration - ids.born_at(number)
            self._waits.labels(**labels).observe(max(0.0, waited))

    def requested(self, kind: str, seconds: float) -> None:
        """A call to the store took so long."""
        self._requests.labels(**self._labels, kind=kind).observe(seconds)

    def text(self, reaches: Callable[[str], bool] = lambda queue: True) -> bytes:
        """As Prometheus reads it: all of it, or what tells of the queues that are reached."""
        written: bytes = _client().generate_latest(_Reached(self._registry, reaches))
        return written

    def text_with(self, queues: Iterable[tuple[QueueInfo, Stats]], reaches: Callable[[str], bool]) -> bytes:
        """The same, with what each queue holds: for the one process that tells it."""
        registry = _client().CollectorRegistry()
        registry.register(_Depths([pair for pair in queues if reaches(pair[0].name)], self._labels))
        held: bytes = _client().generate_latest(registry)
        return self.text(reaches) + held

    def serve(self, port: int = DEFAULT_PORT, host: str = "127.0.0.1") -> None:
        """Answer at `/metrics`, in a thread, until `close`."""
        self.port, stop = _served(self._registry, port, host)
        self._ends.append(stop)

    def close(self) -> None:
        """Count no more, and answer no more."""
        while self._ends:
            self._ends.pop()()

    def now(self) -> list[Metric]:
        """What is looked up when somebody asks."""
        core = _client().core
        labels, values = list(self._labels), list(self._labels.values())
        built = core.InfoMetricFamily("holdfast_build", "Which Holdfast this is.", labels=labels)
        built.add_metric(values, {"version": _version(), "python": platform.python_version()})
        slots = core.GaugeMetricFamily(
            "holdfast_worker_slots", "Handlers that workers of this process can run.", labels=[*labels, "state"]
        )
        running = list(self._broker.workers)
        busy, most = sum(each.busy for each in running), sum(each.concurrency for each in running)
        slots.add_metric([*values, "busy"], busy)
        slots.add_metric([*values, "idle"], max(0, most - busy))
        asked = core.CounterMetricFamily(
            "holdfast_store_requests", "Requests to a store that counts them, by kind.", labels=[*labels, "kind"]
        )
        for kind, count in (self._broker.store.requests() or {}).items():
            asked.add_metric([*values, kind], count)
        return [built, slots, asked]


class StreamMetrics:
    """Of Spark's streams, as their queries report them (`holdfast.spark.Watch`)."""

    def __init__(self) -> None:
        client = _client()
        self._registry = client.CollectorRegistry()
        self._rows = self._made("Counter", "holdfast_stream_messages", "Messages that streams have read.")
        self._failures = self._made("Counter", "holdfast_stream_failures", "Queries that ended with an error.")
        self._gauges = {
            name: self._made("Gauge", f"holdfast_stream_{name}", text)
            for name, text in {
                "lag_messages": "Messages that were ready and not read when the last batch ended.",
                "arriving_per_second": "Messages a second that came in, as Spark measured it for the last batch.",
                "processed_per_second": "Messages a second of the last batch.",
                "batch_seconds": "How long the last batch took.",
            }.items()
        }
        self._stop: Callable[[], None] | None = None

    def _made(self, kind: str, name: str, text: str) -> Any:
        return getattr(_client(), kind)(name, text, ["consumer"], registry=self._registry)

    def reported(
        self, consumer: str, *, rows: int, seconds: float, lag: int | None, rates: tuple[float, float]
    ) -> None:
        """A batch has ended, or a query without new messages says that it lives."""
        self._rows.labels(consumer).inc(rows)
        known = {"lag_messages": lag, "arriving_per_second": rates[0], "processed_per_second": rates[1]}
        for name, value in {**known, "batch_seconds": seconds}.items():
            if value is not None:
                self._gauges[name].labels(consumer).set(value)

    def ended(self, consumer: str, *, failed: bool) -> None:
        """Its numbers of now are those of nobody any more."""
        for gauge in self._gauges.values():
            with suppress(KeyError):
                gauge.remove(consumer)
        if failed:
            self._failures.labels(consumer).inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        written: bytes = _client().generate_latest(self._registry)
        return written

    def serve(self, port: int = DEFAULT_PORT, host: str = "127.0.0.1") -> None:
        """Answer at `/metrics`, in a thread, until `close`."""
        self.port, self._stop = _served(self._registry, port, host)

    def close(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None


def _served(registry: Any, port: int, host: str) -> tuple[int, Callable[[], None]]:
    """The port that answers, and what ends it."""
    try:
        server, thread = _client().start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop


def serve(broker: Watched, port: int = DEFAULT_PORT, host: str = "127.0.0.1") -> Metrics:
    """The metrics of what this broker does, for Prometheus to fetch; `close` ends it."""
    metrics = Metrics(broker)
    try:
        metrics.serve(port, host)
    except BaseException:
        metrics.close()
        raise
    return metrics


class _Now:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics.now()

    def describe(self) -> list[Metric]:
        """Nothing in advance: the broker may not be open yet."""
        return []


class _Reached:
    """What a registry has, without the lines of other queues."""

    def __init__(self, registry: Any, reaches: Callable[[str], bool]) -> None:
        self._registry = registry
        self._reaches = reaches

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [
                each for each in metric.samples if "queue" not in each.labels or self._reaches(each.labels["queue"])
            ]
            yield metric


class _Depths:
    """What queues hold, as `stats()` counts it."""

    def __init__(self, queues: list[tuple[QueueInfo, Stats]], labels: Mapping[str, str]) -> None:
        self._queues = queues
        self._labels = labels

    def collect(self) -> list[Metric]:
        core, values = _client().core, list(self._labels.values())
        held = core.GaugeMetricFamily(
            "holdfast_queue_messages", "Messages of a queue.", labels=[*self._labels, "queue", "state"]
        )
        oldest = core.GaugeMetricFamily(
            "holdfast_queue_oldest_age_seconds",
            "How long the oldest pending message has waited.",
            labels=[*self._labels, "queue"],
        )
        for info, stats in self._queues:
            for state in STATES:
                held.add_metric([*values, info.name, state], getattr(stats, state))
            oldest.add_metric([*values, info.name], stats.oldest_age or 0.0)
        return [held, oldest]


def _client() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise ConfigError("metrics need an extra: pip install 'holdfast[server]'") from error
    return prometheus_client


def _version() -> str:
    from . import __version__  # above us, and there once somebody asks

    return __version__
