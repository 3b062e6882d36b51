"""Where the database is, and how a connection to it begins."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from ...config import StoreOptions
from . import faults
from .uri import hosts, named

_HOST_S = 5.0  # a host may take so long while there is another one to try
_PASSING = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_ARRAYS = {  # name of the element: its number, and that of the array, the same on every server
    "bool": (16, 1000), "bytea": (17, 1001), "int8": (20, 1016), "int2": (21, 1005), "int4": (23, 1007),
    "json": (114, 199), "float8": (701, 1022), "date": (1082, 1182), "timestamptz": (1184, 1185), "uuid": (2950, 2951),
}  # fmt: skip


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
                    connection = await self._connect(dsn, min(_HOST_S, limit / len(self._hosts)))
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
                await connection.execute(self.settings())
                _teach_arrays(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def settings(self) -> str:
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


def _teach_arrays(connection: Any) -> None:
    """Tell the driver the arrays of built-in types, which it would else look up on every connection.

    That takes the server some 7 ms, in the first call that sends or gets an array: the first message of a producer, and
    the first claim on a connection, waited for it. Not by the driver's public face: one that has no such place looks
    the types up, as it always did.
    """
    try:
        connection._protocol.get_settings().register_data_types([
            {
                "oid": array, "name": f"_{name}", "ns": "pg_catalog", "kind": b"b", "elemtype": element,
                "elemtype_name": name, "elemdelim": ",", "range_subtype": None, "attrtypoids": None, "attrnames": None,
                "basetype": None,
            }
            for name, (element, array) in _ARRAYS.items()
        ])  # fmt: skip
    except (AttributeError, KeyError, TypeError):
        return
