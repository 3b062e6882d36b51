"""Random histories on PostgreSQL, with a clock that the test moves: it must answer like the oracle."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.config import StoreOptions
from holdfast.stores.base import Store
from holdfast.stores.postgres import open_postgres
from holdfast.testing.clock import ManualClock
from tests.test_state_machines import Stores, run_histories

from .fixtures import Database

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "10"))
_CLOCK = sql.SQL(
    "CREATE TABLE {0}.clock (t float8 NOT NULL); INSERT INTO {0}.clock VALUES ({1});"
    "CREATE OR REPLACE FUNCTION {0}.now() RETURNS timestamptz LANGUAGE sql STABLE"
    " AS 'SELECT to_timestamp(t) FROM {0}.clock'"
)


@pytest.mark.timeout(300)
def test_postgres_answers_like_the_model(postgres: Database) -> None:
    admin, numbers = postgres.connect(), count(1)

    class Schemas(Stores):
        """A schema of its own for every history, whose clock is the test's."""

        def __init__(self, clock: ManualClock, folder: Path) -> None:
            super().__init__(clock, folder)
            self.schema, self.made = f"h{next(numbers)}", False

        async def open(self) -> Store:
            store = await open_postgres(postgres.url, StoreOptions(schema=self.schema, notify=False))
            if not self.made:
                self.made = True
                await store.install()
                admin.execute(_CLOCK.format(sql.Identifier(self.schema), sql.Literal(self.clock())))
                self.clock.on_advance(self.moved)
            return store

        def moved(self) -> None:
            update = sql.SQL("UPDATE {}.clock SET t = {}")
            admin.execute(update.format(sql.Identifier(self.schema), sql.Literal(self.clock())))

    run_histories(Schemas, EXAMPLES)
    admin.close()


def test_clock_is_frozen(postgres: Database) -> None:
    """The trick the histories stand on."""
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(_CLOCK.format(sql.Identifier("holdfast"), sql.Literal(5.0)))
        assert admin.execute("SELECT date_part('epoch', holdfast.now())").fetchone() == (5.0,)
