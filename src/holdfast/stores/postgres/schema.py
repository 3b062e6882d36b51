"""Migrations: applied in order, once, under a lock; a newer schema than ours is refused."""

from __future__ import annotations

from typing import Any

from ...errors import StoreError
from . import names, statements
from .pool import Pool
from .statements import Statements

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
# By reading the catalog, not by to_regclass: that may answer from a cache of before we had the lock.
_KNOWN = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = $1 AND c.relname = 'migrations')"
)


class Schema:
    """What Holdfast has made in the database."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self.name = schema
        self._sql = Statements(schema)

    async def applied(self) -> list[str] | None:
        """The names of the migrations that are there; None: not installed."""
        return await self._pool.run(self._applied)

    async def _applied(self, connection: Any) -> list[str] | None:
        [(known,)] = await connection.fetch(_KNOWN, self.name)
        if not known:
            return None
        return [row[0] for row in await connection.fetch(self._sql["migrations_applied"])]

    async def check(self) -> bool:
        """Whether it is installed; StoreError when it does not fit this version of Holdfast."""
        installed = await self.open()
        if self._pool.refusal is not None:
            raise self._pool.refusal
        return installed

    async def open(self) -> bool:
        """The same, but an older schema is refused only when it is used: `install` brings it up to date."""
        applied = await self.applied()
        if applied is None:
            return False
        ours = statements.migrations()
        if newer := sorted(set(applied) - set(ours)):
            raise StoreError(
                f"schema {self.name} was made by a newer version of Holdfast (it has {newer[-1]}); use that version"
            )
        if set(ours) - set(applied):
            self._pool.refusal = StoreError(
                f"schema {self.name} is of an older version of Holdfast; run `holdfast install`"
            )
        return True

    async def install(self, *, dry_run: bool = False) -> list[str]:
        """The steps (to be) taken, in words."""
        refusal, self._pool.refusal = self._pool.refusal, None
        try:
            if dry_run:
                return self._steps(await self.applied())
            steps = await self._pool.transact(self._install)
            refusal = None
            return steps
        finally:
            self._pool.refusal = refusal

    def _steps(self, applied: list[str] | None) -> list[str]:
        missing = [name for name in statements.migrations() if name not in (applied or [])]
        begin = [f"create schema {self.name}"] if applied is None else []
        return begin + [f"apply migration {name}" for name in missing]

    async def _install(self, connection: Any) -> list[str]:
        await connection.fetch(_LOCK, f"holdfast.install.{self.name}")
        applied = await self._applied(connection)
        steps = self._steps(applied)
        if applied is None:
            await connection.execute(self._sql.whole("migrations_begin"))
        for name in statements.migrations():
            if name not in (applied or []):
                await connection.execute(self._sql.whole(f"migrations/{name}"))
                await connection.fetch(self._sql["migrations_note"], name)
        return steps

    async def uninstall(self) -> None:
        """Everything of ours goes. A schema that is not ours is left alone."""

        async def step(connection: Any) -> None:
            await connection.fetch(_LOCK, f"holdfast.install.{self.name}")
            if await self._applied(connection) is not None:
                await connection.execute(self._sql.whole("uninstall"))

        self._pool.refusal = None
        await self._pool.transact(step)


def grants(role: str, *, schema: str = "holdfast") -> str:
    """SQL that gives a role what producers and workers need, and no more; run it as the owner of the schema."""
    return Statements(schema).whole("grants", role=names.quoted(role))
