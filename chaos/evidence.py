"""The events of a run, sorted by what the checker asks about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .history import (
    RAISED,
    Acknowledged,
    Asked,
    Attempted,
    Buried,
    Claimed,
    Event,
    Extended,
    Found,
    Killed,
    Settled,
    Started,
)


@dataclass
class Evidence:
    """Everything known of one run; `process` says who wrote what."""

    attempted: dict[str, Attempted] = field(default_factory=dict)  # by key
    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)  # by key
    claims: dict[str, list[tuple[str, Claimed]]] = field(default_factory=lambda: defaultdict(list))  # by id
    starts: dict[str, list[tuple[str, Started]]] = field(default_factory=lambda: defaultdict(list))
    extensions: dict[str, list[Extended]] = field(default_factory=lambda: defaultdict(list))
    settled: dict[str, list[Settled]] = field(default_factory=lambda: defaultdict(list))  # accepted ones only
    in_doubt: dict[str, dict[str, Asked]] = field(default_factory=lambda: defaultdict(dict))  # by id and token
    refused: int = 0  # settlements the store did not accept
    buried: dict[str, list[Buried]] = field(default_factory=lambda: defaultdict(list))
    found: dict[str, list[Found]] = field(default_factory=lambda: defaultdict(list))
    kills: list[Killed] = field(default_factory=list)
    _by_process: dict[str, list[Claimed]] = field(default_factory=lambda: defaultdict(list))

    def add(self, process: str, event: Event) -> None:
        match event:
            case Attempted():
                self.attempted[event.key] = event
            case Acknowledged():
                self.acknowledged[event.key] = event
            case Claimed():
                self.claims[event.id].append((process, event))
                self._by_process[process].append(event)
            case Started():
                self.starts[event.id].append((process, event))
            case Extended():
                self.extensions[event.id].append(event)
            case Asked() | Settled():
                self._add_settled(event)
            case Buried():
                self.buried[event.id].append(event)
            case Found():
                self.found[event.id].append(event)
            case Killed():
                self.kills.append(event)

    def _add_settled(self, event: Asked | Settled) -> None:
        """What was asked for stays in doubt only when no answer was noted: the process died in the middle of the call
        (the recorder notes everything else, exceptions too), or the call itself could not say (`raised`).

        Such a release may have taken effect, and then the attempt was not counted: to demand that it was, or that it
        was not, would accuse a store that did right. Any answer ends the doubt: `lost` means that nothing was done,
        since a repeat of what was done is `ok`.
        """
        if isinstance(event, Asked):
            self.in_doubt[event.id][event.token] = event
            return
        if event.answer == RAISED:
            return
        self.in_doubt[event.id].pop(event.token, None)
        if event.answer != "ok":
            self.refused += 1
        elif all(earlier.token != event.token for earlier in self.settled[event.id]):
            # Repeating a settlement with the same token is "ok" by contract: only the first one counts.
            self.settled[event.id].append(event)

    def claimed_by(self, process: str) -> list[Claimed]:
        return self._by_process.get(process, [])

    def sort(self) -> None:
        """Claims in the order the store issued them.

        By attempt first: a process that was stopped between the answer and its history notes the claim late.
        """
        for claims in self.claims.values():
            claims.sort(key=lambda entry: (entry[1].attempt, entry[1].at))
        for starts in self.starts.values():
            starts.sort(key=lambda entry: entry[1].at)
        self.kills.sort(key=lambda kill: kill.at)


def gather(events: Iterable[tuple[str, Event]]) -> Evidence:
    evidence = Evidence()
    for process, event in events:
        evidence.add(process, event)
    evidence.sort()
    return evidence
