"""The conformance suite: what a store must do to be a store of Holdfast. It needs pytest and pytest-asyncio.

    from holdfast.testing import contract

    class TestMyStore(contract.All):
        async def open_broker(self):
            return await holdfast.connect("mystore://…")

Every call of `open_broker` within a test must open the same data, every test must find it empty; the fixture `place`
runs before:

        @pytest.fixture
        def place(self, tmp_path):
            self.path = tmp_path

Attributes say what the store can do (`keeps_data`, `several_brokers`, `shared_url`, …, see `StoreContract`); a store
with a clock of its own overrides `advance`. Topics can be taken one by one: `class TestLeases(contract.Leases)`.
With `SyncFace` before them the same tests run through `holdfast.sync`.
"""

from __future__ import annotations

from .archive import Archive
from .backups import Backups
from .bad_input import BadInput
from .base import StoreContract
from .basics import Basics
from .batches import Batches
from .calls import Calls
from .concurrency import Concurrency
from .dead_letters import DeadLetters
from .delay import DelayAndDedup
from .disturbances import Disturbances
from .events import Events
from .face import SyncFace
from .leases import Leases
from .lifetime import Lifetime
from .limits import Limits
from .network import Network
from .options import Options
from .processes import Processes
from .receipts import Receipts, Tokens
from .reopening import Reopening
from .retries import Retries
from .schedules import Schedules
from .seam import Seam
from .whole import Whole
from .workers import Workers

ALL: list[type[StoreContract]] = [
    *(Basics, Leases, Concurrency, Processes, Retries, DeadLetters, Archive, DelayAndDedup),
    *(Batches, Workers, Disturbances, Events, Whole, BadInput, Limits, Receipts, Options, Reopening, Seam),
    *(Tokens, Lifetime, Schedules, Backups, Calls),
]


class All(
    Basics,
    Leases,
    Concurrency,
    Processes,
    Retries,
    DeadLetters,
    Archive,
    DelayAndDedup,
    Batches,
    Workers,
    Disturbances,
    Events,
    Whole,
    BadInput,
    Limits,
    Receipts,
    Options,
    Reopening,
    Seam,
    Tokens,
    Lifetime,
    Schedules,
    Backups,
    Calls,
):
    """Every topic but `Network`, which is for stores that have one."""


__all__ = [
    "ALL",
    "All",
    "Archive",
    "Backups",
    "BadInput",
    "Basics",
    "Batches",
    "Calls",
    "Concurrency",
    "DeadLetters",
    "DelayAndDedup",
    "Disturbances",
    "Events",
    "Leases",
    "Lifetime",
    "Limits",
    "Network",
    "Options",
    "Processes",
    "Receipts",
    "Reopening",
    "Retries",
    "Schedules",
    "Seam",
    "StoreContract",
    "SyncFace",
    "Tokens",
    "Whole",
    "Workers",
]
