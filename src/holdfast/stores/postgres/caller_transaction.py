"""The caller's own connection: whatever its driver, it takes our statements, inside the caller's transaction."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, Protocol

from ...errors import ConfigError


class Speaker(Protocol):
    """What takes statements: a connection of ours, or the caller's own."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]: ...


async def joined(connection: Any) -> Speaker:
    """A speaker for the connection; ConfigError when it is none we know."""
    if "sqlalchemy" in _family(connection):
        connection = await _beneath(connection)
    family = _family(connection)
    if "asyncpg" in family:
        return _Asyncpg(connection)
    if "psycopg" in family:
        import psycopg

        if isinstance(connection, psycopg.AsyncConnection):
            return _AsyncPsycopg(connection)
        if isinstance(connection, psycopg.Connection):
            return _Psycopg(connection)
    raise ConfigError(
        "connection= takes a connection of psycopg or asyncpg, or of SQLAlchemy over them, "
        f"not {type(connection).__qualname__}"
    )


def _family(thing: object) -> set[str]:
    """The packages its class and bases come from."""
    return {kind.__module__.partition(".")[0] for kind in type(thing).__mro__}


async def _beneath(connection: Any) -> Any:
    """The driver's connection under a Connection, AsyncConnection, Session or AsyncSession, its transaction begun."""
    if any(kind.__name__ in ("Session", "AsyncSession") for kind in type(connection).__mro__):
        connection = connection.connection()
        connection = await connection if inspect.isawaitable(connection) else connection
    if not connection.in_transaction():
        begun = connection.begin()
        if inspect.isawaitable(begun):
            await begun
    if hasattr(connection, "get_raw_connection"):
        raw = await connection.get_raw_connection()
        return raw.driver_connection
    return connection.connection.driver_connection


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        return list(await self._connection.fetch(query, *args))


class _AsyncPsycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        import psycopg
        from psycopg.rows import tuple_row

        async with psycopg.AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(query.encode(), args)
            return await cursor.fetchall() if cursor.description else []


class _Psycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        return await asyncio.to_thread(self._fetch, query, args)

    def _fetch(self, query: str, args: Sequence[Any]) -> Sequence[Any]:
        import psycopg
        from psycopg.rows import tuple_row

        with psycopg.RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(query.encode(), args)
            return cursor.fetchall() if cursor.description else []
