"""NATS JetStream: one work-queue stream per queue, Protocol Buffers on the wire, a fence in a stream of records."""

from __future__ import annotations

from ...config import StoreOptions
from ...errors import ConfigError
from ..base import Store


def take_apart(url: str) -> tuple[str, list[tuple[str, str]]]:
    """The URL as the driver is to see it, and the part of its query that is ours; ConfigError."""
    from .address import split

    return split(url)


async def open_nats(url: str, options: StoreOptions) -> Store:
    """An open store; ConfigError when the extra is not installed."""
    from .address import parse

    address = parse(url)
    try:
        from .store import NatsStore
    except ImportError as error:
        raise ConfigError("nats:// needs an extra: pip install 'holdfast[nats]'") from error
    return await NatsStore(address, options).open()
