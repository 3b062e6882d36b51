"""The database's own lines for `holdfast doctor`."""

from __future__ import annotations

from typing import Any

from ...errors import HoldfastError
from ..base import Check
from .first_connection import OLDEST_SERVER
from .notify import Listener
from .pool import Pool
from .schema import Schema
from .statements import Statements

_BLOAT_ROWS = 1_000_000  # dead ones that say that vacuum cannot keep up
_LONG_TRANSACTION_S = 600.0  # that may hold back vacuum before we say so


async def check(pool: Pool, schema: Schema, listener: Listener | None) -> list[Check]:
    """Version, durability, checksums, encoding, schema, notifications, autovacuum, dead rows, oldest transaction."""
    sql = Statements(schema.name)
    [row] = await pool.fetch(sql["doctor"])
    checks = [
        _version(row),
        _durable(row),
        _checksums(row),
        _encoding(row),
        await _schema(schema),
        await _notify(listener),
        _autovacuum(row),
        _oldest(row),
    ]
    if await schema.applied() is not None:
        checks.append(_litter(await pool.fetch(sql["doctor_tables"], schema.name)))
    return [*checks, _connections(row)]


def _version(row: Any) -> Check:
    state = "ok" if row["number"] >= OLDEST_SERVER else "fail"
    return Check("version", state, f"PostgreSQL {row['version']}{'' if state == 'ok' else ': 13 or newer is needed'}")


def _durable(row: Any) -> Check:
    if row["fsync"] != "on":
        return Check("durability", "fail", "fsync is off: a crash of the system may lose or corrupt everything")
    if row["commits"] == "off":
        return Check("durability", "warn", "synchronous_commit is off: a crash may lose what was acknowledged last")
    return Check("durability", "ok", f"fsync is on, synchronous_commit is {row['commits']}")


def _checksums(row: Any) -> Check:
    if row["checksums"] == "on":
        return Check("checksums", "ok", "pages have checksums, which the server verifies when it reads them")
    way = "stop the server and run `pg_checksums --enable`"
    return Check("checksums", "warn", f"data_checksums is off: a damaged page may be read as it is; {way}")


def _encoding(row: Any) -> Check:
    if row["encoding"] == "UTF8":
        return Check("encoding", "ok", "UTF8")
    lost = "headers with letters that it lacks are refused, and errors written with escapes"
    return Check("encoding", "warn", f"{row['encoding']}: {lost}; create the database with ENCODING 'UTF8'")


async def _schema(schema: Schema) -> Check:
    try:
        installed = await schema.check()
    except HoldfastError as error:
        return Check("schema", "fail", str(error))
    if not installed:
        return Check(
            "schema", "warn", f"{schema.name} is not there yet; the first queue makes it, or `holdfast install`"
        )
    return Check("schema", "ok", f"{schema.name} has the migrations up to {schema.format.number:03d}")


async def _notify(listener: Listener | None) -> Check:
    if listener is None:
        return Check("notify", "ok", "turned off: new messages are found by polling")
    works = await listener.tried()
    if works:
        return Check("notify", "ok", "notifications arrive")
    return Check("notify", "warn", "notifications do not arrive (a pooler in transaction mode?): polling takes over")


def _autovacuum(row: Any) -> Check:
    if row["autovacuum"] != "on":
        return Check("autovacuum", "warn", "autovacuum is off: finished messages will pile up in the tables")
    return Check("autovacuum", "ok", "on")


def _oldest(row: Any) -> Check:
    age = row["oldest"] or 0.0
    state = "warn" if age > _LONG_TRANSACTION_S else "ok"
    detail = f"the oldest transaction is {age:,.0f} s old"
    hint = ": vacuum cannot remove what ended since; claims stay fast, tables grow"
    return Check("oldest xmin", state, detail + (hint if state == "warn" else ""))


def _litter(rows: list[Any]) -> Check:
    dead, size = sum(row["dead"] for row in rows), sum(row["bytes"] for row in rows)
    state = "warn" if dead > _BLOAT_ROWS else "ok"
    return Check("bloat", state, f"{dead:,} dead rows in {len(rows)} tables of {size / 2**20:,.1f} MiB")


def _connections(row: Any) -> Check:
    state = "warn" if row["used"] > 0.9 * row["most"] else "ok"
    return Check("connections", state, f"{row['used']} of {row['most']} are in use")
