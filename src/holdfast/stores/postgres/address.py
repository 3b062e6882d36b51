"""Where the database is, and how a connection to it begins."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from ...config import StoreOptions
from . import arrays, faults
from .uri import hosts, named

_NEXT = 5.0  # seconds a host may take while there is another one to try
_PASSING = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Address:
    """Where the database is, and how every connection to it begins. Never shown."""

    def __init__(self, dsn: str, options: StoreOptions) -> None:
        self._hosts = hosts(dsn)  # the one that answered last comes first
        self._options = options
        self.shown = f"PostgreSQL at {', '.join(named(each) for each in self._hosts)}"

    async def connect(self) -> Any:
        """A fresh connection with our settings, to the first host that takes us.

        Each host has a time of its own, which the driver does not give them: one that swallows packets, as after the
        loss of a machine, must not use up the time of the others.
        """
        limit = self._options.connect_timeout
        if len(self._hosts) == 1:
            return await self._connect(self._hosts[0], limit)
        async with asyncio.timeout(limit):
            errors: list[BaseException] = []
            for dsn in list(self._hosts):
                try:
                    connection = await self._connect(dsn, min(_NEXT, limit / len(self._hosts)))
                except _PASSING as error:
                    errors.append(error)
                else:
                    self._hosts = [dsn, *(other for other in self._hosts if other != dsn)]
                    return connection
        raise faults.most_telling(errors)

    async def _connect(self, dsn: str, limit: float) -> Any:
        usual = "any" if len(self._hosts) == 1 else "read-write"  # a standby is of no use to a queue
        connection = await asyncpg.connect(
            dsn,
            timeout=limit,
            command_timeout=None,  # deadlines are kept above, around repeats
            target_session_attrs=None if "target_session_attrs" in dsn else usual,
            max_cached_statement_lifetime=0,
        )
        try:
            async with asyncio.timeout(limit):
                await connection.execute(self._settings())
                arrays.teach(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _settings(self) -> str:
        """Plans must not depend on when the last ANALYZE was: the right ones are index scans, always."""
        timeout = f"{int(self._options.statement_timeout * 1000)}"
        wanted = {
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "jit": "off",
            "plan_cache_mode": "force_generic_plan",
            "statement_timeout": timeout,
            "idle_in_transaction_session_timeout": timeout,
        }
        return "; ".join(f"SET {name} = '{value}'" for name, value in wanted.items())

    def __repr__(self) -> str:
        return "Address(postgresql://***)"
