"""What a run with folders that are taken away must show, from its histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..history import Acknowledged, Attempted, Claimed, Event, Refused, Settled
from ..verdict import EXAMPLES, Verdict
from .hurting import Fault

_REASON = "moved, removed or replaced while it was open"
_MOMENT = 0.1  # seconds: a claim promises nothing, and may come out of a folder that is gone since so long


def judge(verdict: Verdict, histories: dict[str, list[Event]], faults: list[Fault]) -> None:
    """Nothing that began while the folder was gone was answered, and every refusal says why."""
    events = [event for history in histories.values() for event in history]
    refused = [event for event in events if isinstance(event, Refused)]
    hit = [fault for fault in faults if any(fault.begun <= each.at <= fault.ended for each in refused)]
    by_kind = Counter(fault.kind for fault in hit)
    verdict.notes |= {
        "faults": len(faults),
        "faults that hit a call": ", ".join([f"{len(hit)}", *(f"{kind} {count}" for kind, count in by_kind.items())]),
        "calls refused": len(refused),
    }
    verdict.expect(len(hit) == len(faults), f"{len(faults) - len(hit)} faults were never felt: they show nothing")
    answered = [f"{what} while it was {fault.kind}" for fault in faults for what in _answered(events, fault)]
    verdict.expect(not answered, f"{len(answered)} calls were answered: {'; '.join(answered[:EXAMPLES])}")
    other = sorted({f"{each.error}: {each.text}" for each in refused if not _is_right(each)})
    verdict.expect(not other, f"{len(other)} refusals of another kind: {'; '.join(other[:EXAMPLES])}")


def _is_right(refused: Refused) -> bool:
    return refused.error == "Unavailable" and _REASON in refused.text


def _answered(events: list[Event], fault: Fault) -> Iterator[str]:
    """Calls that began and ended in between."""
    asked = {event.key: event.at for event in events if isinstance(event, Attempted)}
    for event in events:
        match event:
            case Acknowledged() if fault.begun < asked[event.key] and event.at < fault.ended:
                yield f"an enqueue of {event.key}"
            case Settled() if event.answer == "ok" and fault.begun < event.begun and event.at < fault.ended:
                yield f"a settlement of {event.id}"
            case Claimed() if fault.begun + _MOMENT < event.begun and event.at < fault.ended:
                yield f"a claim of {event.id}"
