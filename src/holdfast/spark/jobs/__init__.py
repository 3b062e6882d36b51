"""The jobs of `holdfast pipeline` as functions, one file each. Each takes a session and answers a summary."""

from __future__ import annotations

from .compact import CompactSummary, compact
from .convert import ConvertSummary, convert
from .ingest import IngestSummary, ingest
from .lake import LakeSummary, lake
from .process import ProcessSummary, process
from .progress import Progress
from .release import ReleaseSummary, release
from .replay import ReplaySummary, replay
from .report import ReportSummary, report
from .session import session
from .table import TableSummary, table

__all__ = [
    "CompactSummary",
    "ConvertSummary",
    "IngestSummary",
    "LakeSummary",
    "ProcessSummary",
    "Progress",
    "ReleaseSummary",
    "ReplaySummary",
    "ReportSummary",
    "TableSummary",
    "compact",
    "convert",
    "ingest",
    "lake",
    "process",
    "release",
    "replay",
    "report",
    "session",
    "table",
]
