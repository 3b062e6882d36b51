"""Where the database is, and how a connection to it begins."""

from __future__ import annotations

from typing import Any

import asyncpg

from ...config import StoreOptions


class Address:
    """Where the database is, and how every connection to it begins. Never shown."""

    def __init__(self, dsn: str, options: StoreOptions) -> None:
        self._dsn = dsn
        self._options = options

    async def connect(self) -> Any:
        """A fresh connection with our settings."""
        options = self._options
        connection = await asyncpg.connect(
            self._dsn,
            timeout=options.connect_timeout,
            command_timeout=None,  # deadlines are kept above, around repeats
            target_session_attrs=None if "target_session_attrs" in self._dsn else "any",
            max_cached_statement_lifetime=0,
        )
        try:
            await connection.execute(self._settings())
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
