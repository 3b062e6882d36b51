"""The doctor: the same checks as `holdfast doctor`."""

from __future__ import annotations

import time
from typing import Any

from litestar import Request, Response, get

from ... import admin
from ..replies import served_of
from . import words
from .frame import page


@get("/doctor", opt={"role": "operate"})
async def show(request: Request[Any, Any, Any]) -> Response[bytes]:
    """What to act on first, then what is fine."""
    began = time.monotonic()
    checks = await admin.look_into(served_of(request).broker)
    took = time.monotonic() - began
    fails, warns = ([each for each in checks if each.state == state] for state in ("fail", "warn"))
    fine = [each for each in checks if each.state == "ok"]
    said = [f"{words.plural(len(fails), 'check fails', 'checks fail')}"] if fails else []
    said += [f"{len(warns)} warn" if fails else words.plural(len(warns), "check warns", "checks warn")] if warns else []
    said += [f"{len(fine)} are fine"] if said else [f"All {len(fine)} checks are fine"]
    heading = ", ".join(said)
    values = {"heading": heading, "act_on": [*fails, *warns], "fine": fine, "took": took}
    return await page(request, "doctor.html", title=heading, here="h", **values)


ROUTES = [show]
