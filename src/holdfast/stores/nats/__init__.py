"""NATS JetStream: one work-queue stream per queue, Protocol Buffers on the wire, a fence in a stream of records."""

from __future__ import annotations

from ...config import StoreOptions
from ..base import Store


def take_apart(url: str, shown: str) -> tuple[str, list[tuple[str, str]]]:
    """The URL as the driver is to see it, and the part of its query that is ours; ConfigError."""
    from .address import split

    return split(url)


async def open_nats(url: str, options: StoreOptions) -> Store:
    """An open store."""
    from .address import parse

    address = parse(url)
    from .store import NatsStore

    return await NatsStore(address, options).open()
