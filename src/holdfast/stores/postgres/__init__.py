"""PostgreSQL: SKIP LOCKED, LISTEN/NOTIFY, messages in the caller's own transaction."""

from __future__ import annotations

from typing import Any

from ...config import StoreOptions
from ...errors import HoldfastError
from ..base import Store
from .uri import take_apart

__all__ = ["grants", "install_sql", "open_postgres", "take_apart"]


def grants(role: str, options: StoreOptions) -> str:
    """SQL that gives a role what producers and workers need, and no more; without any I/O."""
    from . import schema

    return schema.grants(role, schema=options.schema)


def install_sql(options: StoreOptions) -> str:
    """SQL that does what `install` does in a database without Holdfast; without any I/O."""
    from . import schema

    return schema.install_sql(schema=options.schema)


async def open_postgres(dsn: str, options: StoreOptions, *, pool: Any = None) -> Store:
    """Connect to the database; what the store needs there is made by `install`, or with the first queue."""
    from .address import Address
    from .store import PostgresStore

    store = PostgresStore(Address(dsn, options), options, pool=pool)
    try:
        await store.open()
    except HoldfastError:
        await store.close()
        raise
    return store
