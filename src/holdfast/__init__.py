"""Durable message and job queues on the storage you already have."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import sync as sync
    from .app import App as App
    from .backups import Backup as Backup
    from .backups import Restored as Restored
    from .backups import backup as backup
    from .backups import move as move
    from .backups import restore as restore
    from .broker import Broker as Broker
    from .broker import connect as connect
    from .config import QueueOptions as QueueOptions
    from .config import StoreOptions as StoreOptions
    from .config import WorkerOptions as WorkerOptions
    from .deliveries import Attempt as Attempt
    from .deliveries import Delivery as Delivery
    from .deliveries import Record as Record
    from .ended import Replayed as Replayed
    from .errors import CodecError as CodecError
    from .errors import ConfigError as ConfigError
    from .errors import Damaged as Damaged
    from .errors import Fenced as Fenced
    from .errors import HoldfastError as HoldfastError
    from .errors import InvalidPriority as InvalidPriority
    from .errors import LeaseLost as LeaseLost
    from .errors import MessageError as MessageError
    from .errors import MessageNotFound as MessageNotFound
    from .errors import MessageTooLarge as MessageTooLarge
    from .errors import QueueError as QueueError
    from .errors import QueueExists as QueueExists
    from .errors import QueueFull as QueueFull
    from .errors import QueueNotEmpty as QueueNotEmpty
    from .errors import QueueNotFound as QueueNotFound
    from .errors import ScheduleNotFound as ScheduleNotFound
    from .errors import StoreError as StoreError
    from .errors import Unavailable as Unavailable
    from .errors import UnknownOutcome as UnknownOutcome
    from .errors import UnsafeStore as UnsafeStore
    from .events import Event as Event
    from .messages import Message as Message
    from .outcome import Dead as Dead
    from .outcome import Retry as Retry
    from .queue import Queue as Queue
    from .retry import Exponential as Exponential
    from .retry import Fixed as Fixed
    from .retry import Linear as Linear
    from .retry import NoRetry as NoRetry
    from .schedules import Schedule as Schedule
    from .scheduling import ScheduleInfo as ScheduleInfo
    from .stores.base import QueueInfo as QueueInfo
    from .stores.records import Enqueued as Enqueued
    from .stores.records import Stats as Stats
    from .worker import Context as Context
    from .worker import Worker as Worker

__version__ = "0.1.0"

# Where each public name lives. It is imported when first used, so that `import holdfast` costs next to nothing.
_HOMES = {
    "app": ("App",),
    "backups": ("Backup", "Restored", "backup", "move", "restore"),
    "broker": ("Broker", "connect"),
    "config": ("QueueOptions", "StoreOptions", "WorkerOptions"),
    "deliveries": ("Attempt", "Delivery", "Record"),
    "ended": ("Replayed",),
    "errors": (
        *("CodecError", "ConfigError", "Damaged", "Fenced", "HoldfastError", "InvalidPriority", "LeaseLost"),
        *("MessageError", "MessageNotFound", "MessageTooLarge", "QueueError", "QueueExists", "QueueFull"),
        *("QueueNotEmpty", "QueueNotFound", "ScheduleNotFound", "StoreError", "Unavailable", "UnknownOutcome"),
        "UnsafeStore",
    ),
    "events": ("Event",),
    "messages": ("Message",),
    "outcome": ("Dead", "Retry"),
    "queue": ("Queue",),
    "retry": ("Exponential", "Fixed", "Linear", "NoRetry"),
    "schedules": ("Schedule",),
    "scheduling": ("ScheduleInfo",),
    "stores.base": ("QueueInfo",),
    "stores.records": ("Enqueued", "Stats"),
    "worker": ("Context", "Worker"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "App",
    "Attempt",
    "Backup",
    "Broker",
    "CodecError",
    "ConfigError",
    "Context",
    "Damaged",
    "Dead",
    "Delivery",
    "Enqueued",
    "Event",
    "Exponential",
    "Fenced",
    "Fixed",
    "HoldfastError",
    "InvalidPriority",
    "LeaseLost",
    "Linear",
    "Message",
    "MessageError",
    "MessageNotFound",
    "MessageTooLarge",
    "NoRetry",
    "Queue",
    "QueueError",
    "QueueExists",
    "QueueFull",
    "QueueInfo",
    "QueueNotEmpty",
    "QueueNotFound",
    "QueueOptions",
    "Record",
    "Replayed",
    "Restored",
    "Retry",
    "Schedule",
    "ScheduleInfo",
    "ScheduleNotFound",
    "Stats",
    "StoreError",
    "StoreOptions",
    "Unavailable",
    "UnknownOutcome",
    "UnsafeStore",
    "Worker",
    "WorkerOptions",
    "__version__",
    "backup",
    "connect",
    "move",
    "restore",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name == "sync":
        return importlib.import_module(f"{__name__}.sync")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next look finds it at once
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
