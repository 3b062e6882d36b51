"""The one checker: from the histories of a run to what went wrong in it. Pure; shared by every run and store.

The first five counts of reliability.md decide, and three more that are as plain a breach of the contract: a live lease
stolen, attempts miscounted, more runs than allowed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from .evidence import Evidence, gather
from .history import Claimed, Event, Found
from .verdict import EXAMPLES, Recovery, Verdict

LIVE = frozenset({"delayed", "pending", "processing", "retry"})
ENDS = frozenset({"complete", "dead"})


def check(events: Iterable[tuple[str, Event]], *, archive: bool = True) -> Verdict:
    """Judge a run. With `archive=False` completed messages are gone, and their accepted completion stands for them."""
    evidence = gather(events)
    verdict = Verdict(
        attempted=len(evidence.attempted),
        acknowledged=len(evidence.acknowledged),
        completed=sum(any(s.action == "complete" for s in settled) for settled in evidence.settled.values()),
        dead=sum(any(row.status == "dead" for row in rows) for rows in evidence.found.values()),
        refused=evidence.refused,
        kills=sum(kill.signal == "SIGKILL" and kill.process.startswith("w") for kill in evidence.kills),
    )
    for name, breaches in BREACHES.items():
        examples = list(lost(evidence, archive=archive) if breaches is lost else breaches(evidence))
        setattr(verdict, name, len(examples))
        if examples:
            verdict.examples[name] = examples[:EXAMPLES]
    verdict.duplicate_executions = duplicate_executions(evidence)
    verdict.order_inversions = order_inversions(evidence)
    verdict.effective_kills, verdict.recovery = recovery(evidence)
    return verdict


def lost(evidence: Evidence, *, archive: bool = True) -> Iterator[str]:
    """Acknowledged, or accepted as completed, and now nowhere."""
    done = {id for id, settled in evidence.settled.items() if any(s.action == "complete" for s in settled)}
    kept = set(evidence.found) | (set() if archive else done)
    for key, acknowledged in evidence.acknowledged.items():
        if acknowledged.id not in kept:
            yield f"{key} ({acknowledged.id}) was acknowledged"
    known = {acknowledged.id for acknowledged in evidence.acknowledged.values()}
    for id in done - kept - known:
        yield f"{id} was completed, its archived record is gone"


def unexpected(evidence: Evidence) -> Iterator[str]:
    """Seen, never attempted; or seen with other bytes; or one attempt that became two messages."""
    ids_of: dict[str, set[str]] = defaultdict(set)
    for key, acknowledged in evidence.acknowledged.items():
        ids_of[key].add(acknowledged.id)
    for id, key, checksum in _sightings(evidence):
        attempt = evidence.attempted.get(key)
        if attempt is None:
            yield f"{id} has the key {key!r} that nobody attempted"
        elif attempt.check != checksum:
            yield f"{id} ({key}) has another payload than was sent"
        else:
            ids_of[key].add(id)
    for key, found in ids_of.items():
        if len(found) > 1:
            yield f"{key} is there {len(found)} times: {', '.join(sorted(found))}"


def _sightings(evidence: Evidence) -> set[tuple[str, str, int]]:
    claimed = {(claim.id, claim.key, claim.check) for claims in evidence.claims.values() for _, claim in claims}
    return claimed | {(row.id, row.key, row.check) for rows in evidence.found.values() for row in rows}


def unfinished(evidence: Evidence) -> Iterator[str]:
    """Still live after the drain."""
    for id, rows in evidence.found.items():
        for row in rows:
            if row.status in LIVE:
                yield f"{id} ({row.key}) is still {row.status} after {row.attempts} attempts"


def duplicate_completions(evidence: Evidence) -> Iterator[str]:
    """Ended more than once: two accepted completions, two records, or completed here and dead there."""
    for id in set(evidence.settled) | set(evidence.found):
        completions = [s for s in evidence.settled.get(id, ()) if s.action == "complete"]
        ended = [row for row in evidence.found.get(id, ()) if row.status not in LIVE]
        if len(completions) > 1:
            yield f"{id} was completed {len(completions)} times, by different tokens"
        elif len(ended) > 1:
            yield f"{id} ended {len(ended)} times: {', '.join(row.status for row in ended)}"
        elif completions and ended and ended[0].status != "completed":
            yield f"{id} was accepted as completed and is {ended[0].status}"


def zombie_completions(evidence: Evidence) -> Iterator[str]:
    """A settlement accepted although a newer token had been issued, or a token issued after the end was accepted."""
    for id, settled in evidence.settled.items():
        claims = [claim for _, claim in evidence.claims.get(id, ())]
        order = {claim.token: place for place, claim in enumerate(claims)}
        for settlement in settled:
            newer = claims[order[settlement.token] + 1 :] if settlement.token in order else []
            if settlement.action not in ENDS:
                newer = [claim for claim in newer if claim.at < settlement.begun]
            if newer:
                yield f"{id}: {settlement.action} accepted from token {settlement.token}, {newer[-1].token} is newer"


def early_steals(evidence: Evidence) -> Iterator[str]:
    """Claimed again while a lease was certainly alive (counted from before the call that gave it)."""
    for id, claims in evidence.claims.items():
        given_back = {s.token: s.begun for s in evidence.settled.get(id, ())}
        for (_, claim), (_, next_claim) in pairwise(claims):
            alive_until = _lease_end(evidence, claim)
            until = given_back.get(claim.token, _perhaps_given_back(evidence, claim, next_claim))
            if next_claim.at < min(alive_until, until):
                early = alive_until - next_claim.at
                yield f"{id}: token {next_claim.token} issued {early:.3f} s before the lease ended"


def _perhaps_given_back(evidence: Evidence, claim: Claimed, next_claim: Claimed) -> float:
    """When a lease may have been given back by one who never heard the answer; infinite: it was not.

    The next attempt's number tells: a release that took effect gave its attempt back, a retry did not.
    """
    asked = evidence.in_doubt.get(claim.id, {}).get(claim.token)
    if asked is None or (asked.action == "release") != (next_claim.attempt == claim.attempt):
        return float("inf")
    return asked.at


def _lease_end(evidence: Evidence, claim: Claimed) -> float:
    extended = (
        extension.begun + extension.seconds
        for extension in evidence.extensions.get(claim.id, ())
        if extension.token == claim.token and extension.accepted
    )
    return max(claim.begun + claim.lease, *extended, 0.0)


def miscounted_attempts(evidence: Evidence) -> Iterator[str]:
    """One attempt number given out twice, or one above the maximum.

    Each number is given out once, and once more for each release of a claim with that very number: a release takes its
    attempt back. Releases count when the store accepted them, or when nobody knows (see Evidence.in_doubt).
    """
    for id, claims in evidence.claims.items():
        back = {s.token for s in evidence.settled.get(id, ()) if s.action == "release"}
        back |= {asked.token for asked in evidence.in_doubt.get(id, {}).values() if asked.action == "release"}
        tokens: dict[int, set[str]] = defaultdict(set)
        for _, claim in claims:
            tokens[claim.attempt].add(claim.token)
            if claim.attempt > claim.max_attempts:
                yield f"{id} is at attempt {claim.attempt} of {claim.max_attempts}"
        for attempt, issued in tokens.items():
            if len(issued) > 1 + len(issued & back):
                yield f"{id} was claimed {len(issued)} times as attempt {attempt}, {len(issued & back)} were released"


BREACHES: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "lost": lost,
    "unexpected": unexpected,
    "unfinished": unfinished,
    "duplicate_completions": duplicate_completions,
    "zombie_completions": zombie_completions,
    "early_steals": early_steals,
    "miscounted_attempts": miscounted_attempts,
}


def duplicate_executions(evidence: Evidence) -> int:
    """Runs beyond the first that no accepted retry or release asked for."""
    extra = 0
    for id, starts in evidence.starts.items():
        asked = sum(settlement.action in ("retry", "release") for settlement in evidence.settled.get(id, ()))
        extra += max(0, len(starts) - 1 - asked)
    return extra


def order_inversions(evidence: Evidence) -> int:
    """First claims of one producer and priority in the wrong order, beyond doubt: the later one's claim had ended
    before the earlier one's began. Producers call one after the other, so their numbers are their order."""
    lanes: dict[tuple[str, int], list[tuple[int, Claimed]]] = defaultdict(list)
    for claims in evidence.claims.values():
        first = claims[0][1]
        attempt = evidence.attempted.get(first.key)
        if attempt is not None and first.attempt == 1 and not first.recovered:
            producer, _, number = first.key.rpartition("/")
            lanes[producer, attempt.priority].append((int(number), first))
    return sum(_inversions(sorted(lane, key=lambda entry: entry[0])) for lane in lanes.values())


def _inversions(lane: list[tuple[int, Claimed]]) -> int:
    count, earliest_end_after = 0, float("inf")
    for _, claim in reversed(lane):
        count += earliest_end_after < claim.begun
        earliest_end_after = min(earliest_end_after, claim.at)
    return count


def recovery(evidence: Evidence) -> tuple[int, Recovery]:
    """Kills that hit a leased message, and how long each of those messages waited for its next start."""
    effective, waits = 0, []
    for kill in evidence.kills:
        held = list(_held_by(evidence, kill.process, kill.at))
        effective += bool(held)
        for id, token in held:
            after = [started.at for process, started in evidence.starts.get(id, ())
                     if started.at > kill.at and process != kill.process]  # fmt: skip
            waits += [min(after) - kill.at] if after and not _ended_by(evidence, id, token) else []
    return effective, Recovery.of(waits)


def _held_by(evidence: Evidence, process: str, at: float) -> Iterator[tuple[str, str]]:
    for claim in evidence.claimed_by(process):
        ended = min((s.at for s in evidence.settled.get(claim.id, ()) if s.token == claim.token), default=float("inf"))
        if claim.at <= at < ended:
            yield claim.id, claim.token


def _ended_by(evidence: Evidence, id: str, token: str) -> bool:
    return any(settlement.token == token for settlement in evidence.settled.get(id, ()))


def statuses(rows: Iterable[Found]) -> dict[str, int]:
    """How many messages ended as what."""
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.status] += 1
    return dict(counts)
