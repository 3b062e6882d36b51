"""Fencing stands on conditional writes: a bucket whose server ignores them is refused, as without SlateDB."""

from __future__ import annotations

from ....config import StoreOptions
from ..bucket.address import bucket
from ..bucket.faults import Absent, Doubt, Refused, unanswered
from ..bucket.probe import HASTE, probe
from ..bucket.requests import Wire
from ..bucket.usage import Tally
from .location import Place

_trusted: set[tuple[str, str, tuple[tuple[str, str], ...]]] = set()


def once(place: Place, options: StoreOptions) -> None:
    """Probe the bucket, once in the life of the process; UnsafeStore, or whatever keeps us from it."""
    key = (place.kind, place.root, place.config)
    if key in _trusted:
        return
    wire = Wire(bucket(place.url, options), place.text, Tally(), timeout=options.operation_timeout)
    try:
        probe(wire, None, wire.until(HASTE * options.connect_timeout))
    except (Absent, Doubt, Refused) as error:
        raise unanswered(place.text, options.connect_timeout, error) from None
    _trusted.add(key)
