"""OpenTelemetry: spans and metrics of what a broker or an app does, and the trace of a message through its headers.

Needs the extra `otel`. Names are those of the semantic conventions for messaging, version 1.44. A span of one message
has its producer's as parent and as link, so that a trace goes from the producer to the handler; one of several messages
has links only.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from . import limits
from .errors import ConfigError
from .stores.records import Answer, Claimed, Claims, Envelope, Settlement, Uniform

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ConfigError("OpenTelemetry needs an extra: pip install 'holdfast[otel]'") from error

if TYPE_CHECKING:
    from .app import App
    from .broker import Broker
    from .events import Emitter

T = TypeVar("T")
_KINDS = {
    "send": SpanKind.PRODUCER,
    "receive": SpanKind.CLIENT,
    "process": SpanKind.CONSUMER,
    "settle": SpanKind.CLIENT,
}
_PROPAGATOR = TraceContextTextMapPropagator()  # others read the header: it does not depend on settings here
_KEPT_CONTEXTS = 10_000  # of messages in hand, for the spans that settle them; what is held beyond them has no link
# Seconds, as the conventions advise.
_BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def instrument(target: Broker | App | Any, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Trace and measure an open broker, or an app whenever it opens; also those of `holdfast.sync`.

    Before its workers start. Without providers those of the process count, as OpenTelemetry has them.
    """
    made = Instrument(tracer_provider, meter_provider)
    target = getattr(target, "core", target)
    if hasattr(target, "events"):
        made.watch(target.events)
    elif hasattr(target, "on_open"):
        target.on_open(lambda broker: made.watch(broker.events))
    else:
        raise ConfigError(f"instrument: a broker or an app, not {type(target).__qualname__}")


def context_of(headers: Mapping[str, str] | None) -> Context:
    """The context of who sent a message with these headers, for a span of your own around what `dequeue` gave."""
    return _PROPAGATOR.extract(headers or {}, context=Context())


class Instrument:
    """Of one broker; see `events.Tracer`."""

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        from . import __version__

        self._tracer = trace.get_tracer("holdfast", __version__, tracer_provider)
        meter = metrics.get_meter("holdfast", __version__, meter_provider)
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Duration of calls to the store.",
            explicit_bucket_boundaries_advisory=_BOUNDARIES,
        )  # fmt: skip
        self._handlers = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of handlers.", explicit_bucket_boundaries_advisory=_BOUNDARIES
        )
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent.")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were received."
        )
        self._senders: OrderedDict[str, SpanContext] = OrderedDict()  # by id, of messages in hand

    def watch(self, events: Emitter) -> None:
        events.trace_with(self)

    # ------------------------------------------------------------------ what a broker does

    async def send(
        self, queue: str, messages: Sequence[Envelope], append: Callable[[Sequence[Envelope]], Awaitable[list[str]]]
    ) -> list[str]:
        """Append messages that say who sent them."""
        with self._operation("send", queue, len(messages)) as span:
            ids = await append(_marked(messages))
            if len(ids) == 1:
                span.set("messaging.message.id", ids[0])
        self._sent.add(len(messages), _attributes("send", queue))
        return ids

    async def receive(self, queue: str, claiming: Awaitable[Claims]) -> Claims:
        """A claim. One that finds nothing has no span: workers wait with them."""
        began, at = time.monotonic(), time.time_ns()
        try:
            claims = await claiming
        except asyncio.CancelledError:
            raise
        except Exception as error:
            with self._operation("receive", queue, 0, start=at):
                raise error
        if messages := claims.messages:
            links = self._remember(messages)
            with self._operation("receive", queue, len(messages), start=at, began=began, links=links) as span:
                if len(messages) == 1:
                    span.set("messaging.message.id", messages[0].id)
            self._consumed.add(len(messages), _attributes("receive", queue))
        return claims

    async def process(self, queue: str, messages: Sequence[Claimed], run: Callable[[], Awaitable[T]]) -> T:
        """Run a handler in a span of its own."""
        senders = [each for message in messages if (each := _sender(message)).is_valid]
        parent = _parent(senders[0]) if len(messages) == 1 and senders else Context()
        links = [Link(each) for each in senders]
        with self._operation("process", queue, len(messages), parent=parent, links=links) as span:
            if len(messages) == 1:
                span.set("messaging.message.id", messages[0].id)
            return await run()

    async def settle(
        self, queue: str, settlements: Sequence[Settlement], settling: Awaitable[list[Answer]]
    ) -> list[Answer]:
        """Tell the store what became of messages."""
        senders = [each for one in settlements if (each := self._senders.pop(one.id, None)) is not None]
        is_inside = trace.get_current_span().get_span_context().is_valid
        parent = _parent(senders[0]) if len(settlements) == 1 and senders and not is_inside else None
        links = [Link(each) for each in senders]
        with self._operation("settle", queue, len(settlements), parent=parent, links=links) as span:
            if len(settlements) == 1:
                span.set("messaging.message.id", settlements[0].id)
            answers = await settling
            if any(answer != "ok" for answer in answers):
                span.fail("LeaseLost")
        return answers

    # ------------------------------------------------------------------ spans

    def _operation(
        self,
        kind: str,
        queue: str,
        count: int,
        *,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        start: int | None = None,
        began: float | None = None,
    ) -> _Operation:
        attributes = _attributes(kind, queue)
        duration = self._handlers if kind == "process" else self._operations
        more: dict[str, Any] = {"messaging.batch.message_count": count} if count > 1 else {}
        span = self._tracer.start_span(
            f"{kind} {queue}",
            context=parent,
            kind=_KINDS[kind],
            attributes={**attributes, **more},
            links=links,
            start_time=start,
        )
        return _Operation(span, duration, attributes, time.monotonic() if began is None else began)

    def _remember(self, messages: Sequence[Claimed]) -> list[Link]:
        found = {message.id: sender for message in messages if (sender := _sender(message)).is_valid}
        self._senders.update(found)
        while len(self._senders) > _KEPT_CONTEXTS:
            self._senders.popitem(last=False)
        return [Link(sender) for sender in found.values()]


class _Operation:
    """One span, current while it lasts, and its line in a histogram."""

    def __init__(self, span: Span, duration: Any, attributes: Mapping[str, str], began: float) -> None:
        self._span = span
        self._duration = duration
        self._attributes = dict(attributes)
        self._began = began

    def __enter__(self) -> _Operation:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        context.detach(self._token)
        if error is not None:
            self._span.record_exception(error)
            self.fail(_name(error))
        self._span.end()
        self._duration.record(time.monotonic() - self._began, self._attributes)

    def set(self, name: str, value: str) -> None:
        self._span.set_attribute(name, value)

    def fail(self, name: str) -> None:
        self._attributes["error.type"] = name
        self._span.set_attribute("error.type", name)
        self._span.set_status(Status(StatusCode.ERROR))


def _attributes(kind: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "holdfast",
        "messaging.operation.name": kind,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _sender(message: Claimed) -> SpanContext:
    if not message.headers or "traceparent" not in message.headers:
        return trace.INVALID_SPAN_CONTEXT
    return trace.get_current_span(context_of(message.headers)).get_span_context()


def _parent(sender: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(sender), Context())


def _marked(messages: Sequence[Envelope]) -> Sequence[Envelope]:
    """The same with the current span in their headers; who has said so already keeps what was said."""
    ours: dict[str, str] = {}
    _PROPAGATOR.inject(ours)
    if not ours:  # nothing is recorded
        return messages
    if isinstance(messages, Uniform):
        headers, *rest = messages.terms
        return Uniform(messages.payloads, messages.content_type, (_with(headers, ours), *rest))  # type: ignore[arg-type]  # a tuple of Terms, taken apart
    return [msgspec.structs.replace(each, headers=_with(each.headers, ours)) for each in messages]


def _with(headers: dict[str, str] | None, ours: Mapping[str, str]) -> dict[str, str] | None:
    if headers is None:
        return dict(ours)
    if "traceparent" in headers or _size(headers.items()) + _size(ours.items()) > limits.HEADERS_BYTES:
        return headers
    return {**headers, **ours}


def _size(headers: Iterable[tuple[str, str]]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in headers)
