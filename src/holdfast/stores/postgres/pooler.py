"""Is there a pooler in front of the server, and does it keep what Holdfast needs?

A pooler gives its clients keys of its own, so the process that the greeting named is not the one that answers. In
transaction mode such a client gets another server process whenever somebody else has taken the one it had. Then a
prepared statement is missing there, or is there already under a name that another client has given: after a while, and
only under load. So both are tried when the store is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg

from . import faults

_PID = "SELECT pg_backend_pid()"
_ROUNDS = 3  # others may use the same pool, and take what we mean to take
_TURN_S = 2.0  # seconds to wait for a server process; a pool may have one only


async def examine(connection: Any, connect: Callable[[], Awaitable[Any]]) -> None:
    """Raises StoreError where a pooler does not keep prepared statements."""
    if await connection.fetchval(_PID) == connection.get_server_pid():
        return  # the server itself
    try:
        other = await asyncio.wait_for(connect(), _TURN_S)
    except TimeoutError:
        return  # a pool that is used up: we keep what we have, which a pooler in transaction mode would not let us
    try:
        await _try_out(connection, other)
    except asyncpg.PostgresError as error:
        if faults.lacks_prepared_statements(error):
            raise faults.translated(error) from error
        raise
    finally:
        other.terminate()


async def _try_out(connection: Any, other: Any) -> None:
    for _ in range(_ROUNDS):
        name = f"holdfast_{uuid4().hex}"
        ours = await connection.prepare(_PID, name=name)
        await ours.fetchval()
        await ours.fetchval()  # where processes are handed out in turn, already in another one
        async with other.transaction():
            await (await other.prepare(_PID, name=name)).fetchval()  # in the process that we had, if it is free for all
            try:
                await asyncio.wait_for(ours.fetchval(), _TURN_S)
            except TimeoutError:
                return  # one process for all: no other one where the statement could be missing
