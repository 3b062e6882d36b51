"""PostgreSQL: SKIP LOCKED, LISTEN/NOTIFY, messages in the caller's own transaction."""

from __future__ import annotations

from ...config import StoreOptions
from ...errors import ConfigError, HoldfastError
from ..base import Store
from .uri import take_apart

__all__ = ["open_postgres", "take_apart"]

_MISSING = "postgresql:// needs asyncpg: pip install 'holdfast[postgres]'"


async def open_postgres(dsn: str, options: StoreOptions) -> Store:
    """Connect to the database; what the store needs there is made by `install`, or with the first queue."""
    try:
        from .address import Address
        from .store import PostgresStore
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    store = PostgresStore(Address(dsn, options), options)
    try:
        await store.open()
    except HoldfastError:
        await store.close()
        raise
    return store
