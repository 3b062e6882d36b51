"""The report of a lake: figures, tables and one page."""

from __future__ import annotations

from .figures import Figures
from .measure import measure

__all__ = ["Figures", "measure"]
