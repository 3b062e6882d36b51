"""The lines of `holdfast doctor` about a bucket."""

from __future__ import annotations

from ...base import Check
from .clock import StoreClock
from .tally import Tally


def lines(place: str, clock: StoreClock | None, tally: Tally) -> list[Check]:
    checks = [
        Check("bucket", "ok", f"{place}: conditional writes were tried when it was opened, and are honoured"),
        Check(
            "durability",
            "ok",
            "an acknowledged message survives killed processes and lost machines, as far as the bucket keeps objects",
        ),
    ]
    if clock is not None:
        checks.append(Check("store clock", "ok", f"from the dates of objects, known to {clock.doubt:.2f} s"))
    counts = tally.read()
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if not kind.startswith("bytes"))
    sent, received = counts["bytes_sent"], counts["bytes_received"]
    checks.append(Check("requests", "ok", f"since opening: {kinds}; {sent} bytes sent, {received} received"))
    return checks
