"""The lines of `holdfast doctor` about a bucket."""

from __future__ import annotations

from datetime import UTC, datetime

from ...base import Check
from .clock import StoreClock
from .identity import Identity
from .usage import Tally


def lines(place: str, clock: StoreClock | None, tally: Tally, identity: Identity | None) -> list[Check]:
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
    if identity is not None and identity.epoch:
        since = datetime.fromtimestamp(identity.epoch, UTC).isoformat(timespec="seconds")
        checks.append(Check("identity", "ok", f"a copy, or rewritten as a whole: opened as such at {since}"))
    counts = tally.read()
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if not kind.startswith("bytes"))
    sent, received = counts["bytes_sent"], counts["bytes_received"]
    checks.append(Check("requests", "ok", f"since opening: {kinds}; {sent} bytes sent, {received} received"))
    return checks
