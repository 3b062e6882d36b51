"""For tests: of those who use Holdfast, and of those who write a store for it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import contract as contract
    from .clock import ManualClock as ManualClock
    from .inline import Inline as Inline
    from .inline import inline as inline
    from .interleave import Stage as Stage
    from .interleave import interleave as interleave
    from .model import Divergence as Divergence
    from .model import Model as Model

# Where each name lives. It is imported when first used: only `contract` needs pytest.
_HOMES = {
    "Divergence": "model",
    "Inline": "inline",
    "ManualClock": "clock",
    "Model": "model",
    "Stage": "interleave",
    "inline": "inline",
    "interleave": "interleave",
}

__all__ = ["Divergence", "Inline", "ManualClock", "Model", "Stage", "contract", "inline", "interleave"]


def __getattr__(name: str) -> Any:
    if name == "contract":
        return importlib.import_module(f"{__name__}.contract")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # also over the submodule of the same name, which the import has just put here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
