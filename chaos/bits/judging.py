"""What a trial shows: whether the fault had an effect, whether anybody said so, and what must never be."""

from __future__ import annotations

import msgspec

from .places import LOG, WHOLE
from .story import Found, Kept

_SAID = "damaged"
_LATE = ("Unavailable", "UnknownOutcome")  # a busy machine says so too


class Judged(msgspec.Struct, frozen=True):
    effective: bool
    said: bool
    wrong: list[str]  # what must never be, in words
    where: str = ""  # who said it, and what

    @property
    def silent(self) -> bool:
        return self.effective and not self.said


def judge(kept: Kept, found: Found, kind: str) -> Judged:
    every = kept.waiting | kept.finished | kept.dead
    wrong = [f"{id} was delivered as {told[:40]!r}" for id, told in found.delivered if every.get(id) != told]
    twice = len(found.delivered) - len(dict(found.delivered))
    if twice:
        wrong.append(f"{twice} messages were delivered and completed twice")
    ended = [id for id, _ in found.delivered if id not in kept.waiting]
    if kind != LOG:  # what it said last is gone with it, ends of messages too; `doctor` names how many commits
        wrong += [f"{id} had ended and was delivered again" for id in ended]
    for id, (told, result, error) in found.archived.items():
        if id in every and told is not None and told != every[id]:
            wrong.append(f"{id} is archived as {str(told)[:40]!r}")
        if id in kept.results and result != kept.results[id] and _SAID not in error:
            wrong.append(f"the result of {id} is archived as {str(result)[:40]!r}")
    wrong += [f"{id} is dead as {str(told)[:40]!r}" for id, (told, error) in found.dead.items()
              if id in every and told != every[id] and _SAID not in error]  # fmt: skip
    seen = {id for id, _ in found.delivered} | set(found.dead) | set(found.archived)
    missing = set(every) - seen
    died = {id: error for id, (_, error) in found.dead.items() if id not in kept.dead}
    results = [error for _, _, error in found.archived.values() if _SAID in error]
    by_death = bool(results) or any(_SAID in error for error in died.values())
    told = [error for error in found.errors if not error.startswith(_LATE)]
    said = {"call": bool(told), "dead letter": by_death, "scrub": bool(found.scrubbed)}
    forgot = (found.remembered, found.schedules) != (kept.remembered, kept.schedules) and not found.errors
    if kind not in WHOLE and not found.goes_on:
        wrong.append("the queue does not go on")
    is_block = kind in ("block", "delayed block", "retries", "part of a call", "task", "delayed task")
    if is_block and missing:
        wrong.append(f"{len(missing)} messages are neither delivered nor dead")
    effective = bool(wrong or missing or died or any(said.values()) or forgot)
    where = next((who for who, yes in said.items() if yes), "")
    return Judged(effective, any(said.values()), wrong, f"{where}: {told[0]}" if told else where)
