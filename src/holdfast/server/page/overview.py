"""The overview: what needs somebody now, and every queue; and the list of queues alone."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get

from ...queue_reports import QueueReport
from ..replies import served_of
from . import findings, words
from .frame import page, reports_of

_OVERVIEW_ROWS = 200  # of a table on the overview: the list of queues has them all


@get("/", opt={"role": "read"})
async def overview(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Problems first."""
    reports = await reports_of(request)
    if not reports:
        return await page(request, "empty.html", title="No queues yet", here="o")
    found = findings.of(reports)
    bad = sum(each.tone == "bad" for each in found)
    heading = _heading(bad, len(found) - bad)
    return await page(
        request,
        "overview.html",
        title=heading,
        here="o",
        heading=heading,
        found=found,
        rows=findings.worst_first(reports)[:_OVERVIEW_ROWS],
        queues=len(reports),
        totals=_totals(reports),
        seen=served_of(request).watch.seen_when,
    )


@get("/queues", opt={"role": "read"})
async def queues(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Every queue, by name."""
    reports = await reports_of(request)
    if not reports:
        return await page(request, "empty.html", title="No queues yet", here="q")
    heading = words.plural(len(reports), "queue")
    values = {"rows": sorted(reports, key=lambda report: report.name), "totals": _totals(reports)}
    return await page(request, "queues.html", title=heading, here="q", heading=heading, **values)


def _heading(problems: int, watched: int) -> str:
    said = [words.plural(problems, "problem")] if problems else []
    said += [f"{words.plural(watched, 'thing')} to watch"] if watched else []
    return ", ".join(said) or "All is well"


def _totals(reports: list[QueueReport]) -> dict[str, int]:
    fields = ("pending", "delayed", "processing", "retry", "dead", "archived", "completed")
    return {field: sum(getattr(each.stats, field) for each in reports) for field in fields}


ROUTES = [overview, queues]
