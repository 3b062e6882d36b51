"""For tests: of those who use Holdfast, and of those who write a store for it."""

from .clock import ManualClock
from .inline import Inline, inline

__all__ = ["Inline", "ManualClock", "inline"]
