"""The overview: what needs somebody now, and every queue; and the list of queues alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from litestar import Request, Response, get
from litestar.params import FromQuery

from ...queue_reports import QueueReport
from ..replies import served_of
from . import findings, lately, words
from .frame import ROWS, page, reports_of

_LISTED_ROWS = 100  # of the list of queues: a thousand would be a heavy page, asked for again every five seconds


@get("/", opt={"role": "read"})
async def overview(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Problems first."""
    reports = await reports_of(request)
    if not reports:
        return await page(request, "empty.html", title="No queues yet", here="o")
    found = await lately.found(request, reports, datetime.now(UTC))
    bad = sum(each.tone == "bad" for each, _ in found)
    heading = _heading(bad, len(found) - bad)
    rows = findings.worst_first(reports)[:ROWS]
    return await page(
        request,
        "overview.html",
        title=heading,
        here="o",
        heading=heading,
        found=found,
        rows=rows,
        lately=await lately.rows(request, [each.name for each in rows]),
        queues=len(reports),
        totals=_totals(reports),
        seen=served_of(request).watch.seen_when,
    )


@get("/queues", opt={"role": "read"})
async def queues(
    request: Request[Any, Any, Any], after: FromQuery[str] = "", name: FromQuery[str] = ""
) -> Response[bytes]:
    """Every queue, by name, page by page; or those with `name` in theirs."""
    reports = await reports_of(request)
    if not reports:
        return await page(request, "empty.html", title="No queues yet", here="q")
    name = name.strip()
    fitting = sorted((each for each in reports if name in each.name), key=lambda report: report.name)
    rest = [each for each in fitting if each.name > after]
    rows = rest[:_LISTED_ROWS]
    heading = words.plural(len(fitting), "queue")
    values = {
        "rows": rows,
        "lately": await lately.rows(request, [each.name for each in rows]),
        "totals": _totals(fitting),
        "name": name,
        "after": after,
        "before": len(fitting) - len(rest),
        "fitting": len(fitting),
        "next": urlencode({"after": rows[-1].name, **({"name": name} if name else {})})
        if len(rest) > len(rows)
        else "",
    }
    return await page(request, "queues.html", title=heading, here="q", heading=heading, **values)


def _heading(problems: int, watched: int) -> str:
    said = [words.plural(problems, "problem")] if problems else []
    said += [f"{words.plural(watched, 'thing')} to watch"] if watched else []
    return ", ".join(said) or "All is well"


def _totals(reports: list[QueueReport]) -> dict[str, int]:
    fields = ("pending", "delayed", "processing", "retry", "dead", "archived", "completed")
    return {field: sum(getattr(each.stats, field) for each in reports) for field in fields}


ROUTES = [overview, queues]
