"""Migrations: applied in order, once, under a lock; a newer schema than ours is refused, and so is somebody else's.

The number of the last one is the store's format: without our last migration a schema is one of the version before, and
works until the operator lets `install` apply that too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ConfigError, StoreError
from ...limits import listed
from ..formats import Format
from . import names, statements
from .pool import Pool
from .statements import Statements

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_STILL_THERE = "SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = $1 AND nspname <> 'public'"
# What all queues share. Tables of a queue begin with a letter and "_".
TABLES = frozenset(
    (
        *("migrations", "queues", "calls", "settled", "keys", "deltas", "consumers", "batches", "sinks", "staged"),
        *("holdfast_schedules", "holdfast_values"),
    )
)
MARK = "holdfast_mark"
_TENTH = "010_history"  # what messages remember of their attempts: in a store of the format before they do not


class Schema:
    """What Holdfast has made in the database."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self.name = schema
        self._sql = Statements(schema)
        self._number = 0  # of the last migration that is there, as last read

    @property
    def format(self) -> Format:
        newest = _number(statements.migrations()[-1])
        return Format(self._number or newest, newest)

    @property
    def has_history(self) -> bool:
        """As last read."""
        return self.format.number >= _number(_TENTH)

    async def applied(self) -> list[str] | None:
        """The names of the migrations that are there; None: not installed."""
        return await self._pool.run(self._applied)

    async def _applied(self, connection: Any) -> list[str] | None:
        [(marked, older)] = await connection.fetch(self._sql["installed"], self.name)
        if not marked and not older:
            return None
        applied = [row[0] for row in await connection.fetch(self._sql["migrations_applied"])]
        if not marked and statements.migrations()[0] not in applied:
            return None
        self._number = max(map(_number, applied), default=0)
        return applied

    async def clock(self, *, installed: bool) -> float:
        """The store's time, as the queues of this schema see it; the server's own before there are any."""
        if installed or await self.applied() is not None:
            [(now,)] = await self._pool.fetch(self._sql["clock"])
        else:
            [(now,)] = await self._pool.fetch("SELECT date_part('epoch', clock_timestamp())")
        return float(now)

    async def check(self) -> bool:
        """Whether it is installed; StoreError when it does not fit this version of Holdfast."""
        installed = await self.open()
        if self._pool.refusal is not None:
            raise self._pool.refusal
        return installed

    async def open(self) -> bool:
        """The same, but a schema that is too old is refused only when it is used: `install` brings it up to date."""
        applied = await self.applied()
        if applied is None:
            await self._pool.run(self._refuse_namesakes)
            return False
        ours = statements.migrations()
        if newer := sorted(set(applied) - set(ours)):
            raise StoreError(
                f"schema {self.name} was made by a newer version of Holdfast (it has {newer[-1]}): upgrade Holdfast"
            )
        if set(ours[:-1]) - set(applied):
            self._pool.refusal = StoreError(
                f"schema {self.name} is of an older version of Holdfast; run `holdfast install`"
            )
        return True

    async def install(self, *, dry_run: bool = False, shared: bool = False) -> list[str]:
        """The steps (to be) taken, in words. `shared`: also next to what is not ours; ConfigError without it.

        A schema that is there gets everything but our last migration, which versions before this one refuse.
        """
        refusal, self._pool.refusal = self._pool.refusal, None
        try:
            if dry_run:
                return (await self._pool.run(lambda connection: self._plan(connection, shared=shared)))[0]
            steps = await self._pool.transact(lambda connection: self._install(connection, shared=shared))
            refusal = None
            return steps
        finally:
            self._pool.refusal = refusal

    async def raise_format(self) -> None:
        """Apply our last migration."""
        await self._pool.transact(lambda connection: self._install(connection, shared=False, last=True))

    async def _plan(self, connection: Any, *, shared: bool, last: bool = False) -> tuple[list[str], list[str]]:
        """The steps to be taken, and the migrations among them; ConfigError where they must not be."""
        applied = await self._applied(connection)
        ours = statements.migrations()
        begin: list[str] = []
        if applied is None:
            await self._refuse_namesakes(connection)
            if not shared:
                await self._refuse_company(connection)
            begin = [f"create schema {self.name}"]
        wanted = ours if last or applied is None else ours[:-1]
        missing = [name for name in wanted if name not in (applied or [])]
        return begin + [f"apply migration {name}" for name in missing], missing

    async def _install(self, connection: Any, *, shared: bool, last: bool = False) -> list[str]:
        await connection.fetch(_LOCK, f"holdfast.install.{self.name}")
        steps, missing = await self._plan(connection, shared=shared, last=last)
        if await self._applied(connection) is None:
            await connection.execute(self._sql.whole("migrations_begin"))
        for name in missing:
            await connection.execute(self._sql.whole(f"migrations/{name}"))
            await connection.fetch(self._sql["migrations_note"], name)
        await self._applied(connection)
        return steps

    async def uninstall(self) -> list[str]:
        """Our own tables and functions go, then the schema if nothing else is in it; what was left, in words."""

        async def step(connection: Any) -> list[str]:
            await connection.fetch(_LOCK, f"holdfast.install.{self.name}")
            if await self._applied(connection) is not None:
                await connection.execute(self._sql.whole("uninstall"))
                await connection.execute(self._sql.whole("drop_schema"))
            left = [f"{kind} {self.name}.{name}" for kind, name in await self._contents(connection)]
            return left or [f"schema {row[0]}" for row in await connection.fetch(_STILL_THERE, self.name)]

        self._pool.refusal = None
        return await self._pool.transact(step)

    async def grant(self, role: str) -> None:
        """A role gets what producers and workers need, and no more; StoreError before `install`."""
        wanted = grants(role, schema=self.name)

        async def step(connection: Any) -> None:
            if await self._applied(connection) is None:
                raise StoreError(f"there is nothing to grant in schema {self.name} yet; run `holdfast install` first")
            await connection.execute(wanted)

        await self._pool.transact(step)

    # ------------------------------------------------------------------ what is not ours

    async def _contents(self, connection: Any) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in await connection.fetch(self._sql["contents"], self.name)]

    async def _refuse_company(self, connection: Any) -> None:
        """Not installed: whatever is here is somebody else's."""
        if others := await self._contents(connection):
            raise ConfigError(
                f"schema {self.name} has what is not Holdfast's ({_listed(others)}); give Holdfast a schema of its own"
                " (option `schema`), or install next to it with `holdfast install --shared-schema`"
            )

    async def _refuse_namesakes(self, connection: Any) -> None:
        """Tables that are not ours under names that ours would have."""
        if same := [each for each in await self._contents(connection) if each[1] in TABLES | {MARK}]:
            raise ConfigError(
                f"schema {self.name} has tables of others under names that Holdfast needs ({_listed(same)}); give"
                " Holdfast a schema of its own (option `schema`)"
            )


def _number(migration: str) -> int:
    return int(migration.partition("_")[0])


def grants(role: str, *, schema: str = "holdfast") -> str:
    """SQL that gives a role what producers and workers need, and no more; run it as the owner of the schema."""
    try:
        quoted = names.quoted(role)
        return Statements(schema).whole("grants", role=quoted, role_text=names.literal(quoted))
    except ValueError as error:
        raise ConfigError(f"this cannot be a role: {error}") from None


def install_sql(*, schema: str = "holdfast") -> str:
    """What `install` does in a database without Holdfast, for tools that keep migrations themselves."""
    made = Statements(schema)
    parts = [
        "-- Holdfast, for a database without it; run it once, in one transaction.\n",
        made.whole("migrations_begin"),
    ]
    for name in statements.migrations():
        note = made["migrations_note"].replace("$1", names.literal(name))
        parts.append(f"\n-- migration {name}\n{made.whole(f'migrations/{name}')}{note};\n")
    return "".join(parts)


def _listed(found: Sequence[tuple[str, str]]) -> str:
    return listed([f"{kind} {name}" for kind, name in found])
