"""The first connection: what waiting cannot cure is said at once, anything else within `connect_timeout`."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import HoldfastError, StoreError, Unavailable
from . import faults, pooler
from .address import Address

OLDEST_SERVER = 130000  # the oldest server these statements run on, as `server_version_num`
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_LOOK = "SELECT pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only"


async def first_connection(address: Address, seconds: float) -> Any:
    """A connection to a server that Holdfast can work with; Unavailable, StoreError."""
    last: BaseException | None = None
    try:
        async with asyncio.timeout(seconds):
            pause = _FIRST_PAUSE_S
            while True:
                try:
                    return await _examined(address)
                except HoldfastError:
                    raise
                except Exception as error:
                    if faults.is_final(error):
                        raise _refused(error, address) from error
                    last = error
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, pause * 2)
    except TimeoutError as error:
        because = faults.words(last or error)
        raise Unavailable(f"{address.shown} did not open within {seconds:g} s: {because}") from (last or error)


def _refused(error: BaseException, address: Address) -> HoldfastError:
    """Our error for one that another try would only repeat."""
    ours = faults.translated(error)
    cause = faults.unreachable(error)
    return type(ours)(f"{address.shown}: {cause}") if cause else ours


async def _examined(address: Address) -> Any:
    connection = await address.connect()
    try:
        _refuse_old(connection)
        await _refuse_read_only(connection)
        await pooler.examine(connection, address.connect)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _refuse_old(connection: Any) -> None:
    version = connection.get_server_version()
    if version.major * 10000 < OLDEST_SERVER:
        raise StoreError(f"this server is PostgreSQL {version.major}; Holdfast needs 13 or newer: upgrade the server")


async def _refuse_read_only(connection: Any) -> None:
    found = await connection.fetchrow(_LOOK)
    if found["standby"]:
        raise Unavailable(
            "this PostgreSQL server is a read-only standby; name the primary, or all hosts as in host1,host2"
        )
    if found["read_only"]:
        raise StoreError(
            "the sessions of this role are read-only (default_transaction_read_only); a queue has to write:"
            " ALTER ROLE … SET default_transaction_read_only = off, or use another role"
        )
