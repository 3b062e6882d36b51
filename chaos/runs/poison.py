"""R10: messages that kill, hang, block or cannot be read, among healthy ones that must not suffer."""

from __future__ import annotations

from collections import defaultdict

from holdfast.retry import Fixed

from ..history import Claimed, Found, Settled, read_folder
from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

_ATTEMPTS = 3
_FIRST_TIME = "undecodable"  # dead at once, unless a neighbour killed the worker that was about to say so
_EXCEEDS_LEASE = "block"  # must complete: the lease is extended from a thread
KINDS = {"exit": 3, "oom": 2, "hang": 3, "raise": 3, "undecodable": 3, "block": 2}


async def poison(settings: Settings) -> Verdict:
    """Healthy messages all finish; each poison message is dead after exactly its attempts."""
    async with staged("poison", settings, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
        stage.start_workers(concurrency=20, timeout=4 * settings.lease)
        stage.start_producers(seconds=settings.interval * 5, kinds=KINDS)
        kinds = await _supervise(stage)
        verdict = await stage.finish()
        found, claims = _outcomes(stage)
    for key, row in found.items():
        if key not in kinds:
            verdict.expect(row.status == "completed", f"healthy {key} is {row.status} after {row.attempts} attempts")
    for key, kind in kinds.items():
        _judge(verdict, kind, key, found.get(key), claims.get(key, 0))
    verdict.notes["poison"] = ", ".join(f"{n * settings.producers} {kind}" for kind, n in KINDS.items())
    return verdict


async def _supervise(stage: Stage) -> dict[str, str]:
    """What a service manager does: a process that ended is started again. Returns the kind of every poison key."""
    while any(member.running for member in stage.fleet.of("produce")):
        stage.fleet.replace_dead("work")
        stage.tell("supervising")
        await stage.pause()
    kinds: dict[str, str] = {}
    for number in range(stage.settings.producers):
        place = 0
        for kind, count in KINDS.items():
            for _ in range(count):
                place += 1
                kinds[f"p{number}-1/{place}"] = kind
    return kinds


def _outcomes(stage: Stage) -> tuple[dict[str, Found], dict[str, int]]:
    found: dict[str, Found] = {}
    claims: dict[str, int] = defaultdict(int)
    keys: dict[str, str] = {}
    releases: list[str] = []
    for events in read_folder(stage.fleet.folder).values():
        for event in events:
            if isinstance(event, Found):
                found[event.key] = event
            elif isinstance(event, Claimed):
                claims[event.key] += 1
                keys[event.id] = event.key
            elif isinstance(event, Settled) and event.action == "release" and event.answer == "ok":
                releases.append(event.id)
    for id in releases:  # a release takes the attempt back
        claims[keys[id]] -= 1
    return found, dict(claims)


def _judge(verdict: Verdict, kind: str, key: str, found: Found | None, claims: int) -> None:
    if found is None:
        verdict.failures.append(f"{kind} {key} is gone")
        return
    if kind == _EXCEEDS_LEASE:
        verdict.expect(found.status == "completed", f"{kind} {key} is {found.status} although it only takes long")
        return
    least = 1 if kind == _FIRST_TIME else _ATTEMPTS
    verdict.expect(found.status == "dead", f"{kind} {key} is {found.status}, not dead")
    verdict.expect(least <= found.attempts <= _ATTEMPTS, f"{kind} {key} died after {found.attempts} attempts")
    verdict.expect(claims <= found.attempts, f"{kind} {key} was claimed {claims} times in {found.attempts} attempts")
