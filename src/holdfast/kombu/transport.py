"""The transport: connections and channels of kombu over a store."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from kombu.transport import base, virtual

from ..errors import HoldfastError, StoreError, Unavailable
from ..stores.base import LOOK_AGAIN_S
from ..validate import positive
from .bell import Bell
from .channel import Channel
from .link import Link, link_to

if TYPE_CHECKING:
    from collections.abc import Callable


class Transport(virtual.Transport):
    """`holdfast+<url of a store>`; options: `lease`, seconds that a message is held without a word of its holder."""

    Channel = Channel
    driver_type = "holdfast"
    driver_name = "holdfast"
    can_parse_url = True
    default_port = None
    polling_interval: Any = None
    connection_errors: Any = (*virtual.Transport.connection_errors, Unavailable, StoreError)
    channel_errors: Any = (*virtual.Transport.channel_errors, HoldfastError)
    implements = base.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.process = os.getpid()
        self.bell = Bell()
        self.lease = positive("lease", client.transport_options.get("lease", 30.0))
        self._hub: Any = None
        self._on_tick: Callable[[], None] | None = None

    @property
    def link(self) -> Link:
        return link_to(url_of(self.client))

    def driver_version(self) -> str:
        from .. import __version__  # above us, and there once somebody asks

        return __version__

    def establish_connection(self) -> Any:
        if self.bell.closed:
            self.bell = Bell()
        self.link.values  # noqa: B018 - opens the store; its errors are ours
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        if self.process != os.getpid():  # in the child of a fork: it is the parent's
            return
        if self._hub is not None:
            self._hub.remove_reader(self.bell.fileno())
            self._hub.on_tick.discard(self._on_tick)
            self._hub = None
        super().close_connection(connection)
        self.bell.close()

    # Waiting in a thread.

    def drain_events(self, connection: Any, timeout: float | None = None, **more: Any) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        while not self.deliver():
            left = LOOK_AGAIN_S if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError  # what socket.timeout is called today
            self.bell.wait(min(left, LOOK_AGAIN_S))

    def deliver(self) -> int:
        """Give consumers what is there, and ask for more; how many.

        Those of control queues first: a task that was revoked before it was sent must not be faster.
        """
        return sum(channel.deliver() for channel in sorted(self.channels, key=lambda channel: not channel.controls))

    # Woken by the event loop of a worker.

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        def on_tick() -> None:
            self.deliver()

        def on_readable() -> None:
            self.bell.hush()
            self.deliver()

        self._hub, self._on_tick = loop, on_tick
        loop.add_reader(self.bell.fileno(), on_readable)
        loop.on_tick.add(on_tick)


def url_of(client: Any) -> str:
    """The store's URL of a connection of kombu."""
    url = str(client.hostname or "")
    return url.removeprefix("holdfast+")


__all__ = ["Transport", "url_of"]
