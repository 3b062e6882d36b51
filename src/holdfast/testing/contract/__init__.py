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
from .changing import Changing
from .concurrency import Concurrency
from .dead_letters import DeadLetters
from .delay import DelayAndDedup
from .disturbances import Disturbances
from .events import Events
from .expiry import Expiry
from .face import SyncFace
from .history import History
from .leases import Leases
from .lifetime import Lifetime
from .limits import Limits
from .listing import Listing
from .network import Network
from .operating import Operating
from .options import Options
from .processes import Processes
from .receipts import Receipts, Tokens
from .reopening import Reopening
from .reporting import Reporting
from .retries import Retries
from .schedules import Schedules
from .seam import Seam
from .several import SeveralQueues
from .uniqueness import Replacing, Uniqueness
from .values import Values
from .whole import Whole
from .worker_reports import WorkerReports
from .workers import Workers

ALL: list[type[StoreContract]] = [
    *(Basics, Leases, Concurrency, Processes, Retries, DeadLetters, Archive, DelayAndDedup),
    *(Batches, Workers, Disturbances, Events, Whole, BadInput, Limits, Receipts, Options, Reopening, Seam),
    *(Tokens, Lifetime, Schedules, Backups, Calls, SeveralQueues, Listing, Operating, Changing, WorkerReports),
    *(Reporting, Uniqueness, Replacing),
    Expiry,
    History,
    Values,
]


class _Every(
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
    SeveralQueues,
    Listing,
    Operating,
    Reporting,
    Uniqueness,
    Expiry,
    History,
    Values,
):
    """What every store can do. Nothing is skipped: a store has the topics that its capabilities name, and no others."""

    async def test_topics_are_those_of_the_capabilities(self) -> None:
        can = self.store.capabilities
        assert isinstance(self, Calls) == can.remembers_calls
        assert isinstance(self, Changing) == isinstance(self, Replacing) == can.changes_messages


class AllButCalls(_Every, Changing, Replacing):
    """Every topic but `Calls`, for a store that does not remember them."""


class AllButCallsAndChanging(_Every):
    """The same but `Changing` and `Replacing` too, for a store that cannot."""


class All(AllButCalls, Calls):
    """Every topic but `Network`, which is for stores that have one."""


__all__ = [
    "ALL",
    "All",
    "AllButCalls",
    "AllButCallsAndChanging",
    "Archive",
    "Backups",
    "BadInput",
    "Basics",
    "Batches",
    "Calls",
    "Changing",
    "Concurrency",
    "DeadLetters",
    "DelayAndDedup",
    "Disturbances",
    "Events",
    "Expiry",
    "History",
    "Leases",
    "Lifetime",
    "Limits",
    "Listing",
    "Network",
    "Operating",
    "Options",
    "Processes",
    "Receipts",
    "Reopening",
    "Replacing",
    "Reporting",
    "Retries",
    "Schedules",
    "Seam",
    "SeveralQueues",
    "StoreContract",
    "SyncFace",
    "Tokens",
    "Uniqueness",
    "Values",
    "Whole",
    "Workers",
]
