"""From the calls of a run to its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..verdict import EXAMPLES, Verdict
from .calls import Call, Hurt, read
from .quiet import Ending, load
from .rules import breaches
from .rules.breach import Breach
from .rules.expiry import EXPIRED
from .story import Doubt, Story, stories

# Dates on a bucket have whole seconds: clocks differ by up to one, another's lease is over two seconds after its end.
# A list from before a pause may be on its way for 2 s (the run makes some so slow) and serves claims for a moment more.
_BUCKET = Doubt(clocks=1.0, foreign=2.2, pausing=4.0, ahead=True)
# NATS: clients know the server's clock by bounds, and other processes hear of a pause a moment later.
_NATS = Doubt(clocks=0.01, pausing=0.5)
DOUBTS = {"s3": _BUCKET, "azure": _BUCKET, "nats": _NATS}

# The counts of reliability.md in which a kind of breach is shown as well.
COUNTED_AS = {
    "lost": "lost",
    "a replayed message was lost": "lost",
    "a message nobody sent": "unexpected",
    "one enqueue, two messages": "unexpected",
    "one id for two messages": "unexpected",
    "the value changed": "unexpected",
    "replayed twice": "unexpected",
    "dedup: two messages in one window": "unexpected",
    "not ended after the drain": "unfinished",
    "ended twice": "duplicate_completions",
    "delivered after its end": "duplicate_completions",
    "a late holder was heard": "zombie_completions",
    "two holders at once, by the store's clock": "early_steals",
    "two holders at once, by the machine's clock": "early_steals",
    "attempt number": "miscounted_attempts",
    "attempts beyond max_attempts": "miscounted_attempts",
}


class Judgement(msgspec.Struct):
    calls: list[Call]
    hurts: list[Hurt]
    stories: list[Story]
    breaches: list[Breach]

    @property
    def kinds(self) -> Counter[str]:
        return Counter(breach.kind for breach in self.breaches)


def judge(calls: Sequence[Call], hurts: Sequence[Hurt], ending: Ending) -> Judgement:
    """Everything that is wrong with a history."""
    told = stories(calls, hurts, ending, DOUBTS.get(ending.store, Doubt()))
    return Judgement(list(calls), list(hurts), told, [breach for story in told for breach in breaches(story)])


def judged(folder: Path) -> Verdict:
    """The verdict on the histories in a folder."""
    calls, hurts = read(folder)
    ending = load(folder)
    judgement = judge(calls, hurts, ending)
    verdict = _verdict(judgement)
    verdict.run = f"history on {ending.store}" + (f", {ending.shards} shards" if ending.shards > 1 else "")
    return verdict


def _verdict(judgement: Judgement) -> Verdict:
    finals = Counter(each.status for story in judgement.stories for each in story.rest.final.values())
    verdict = Verdict(
        attempted=sum(len(call.uids) for call in judgement.calls),
        acknowledged=sum(len(call.ids) for call in judgement.calls),
        completed=finals["completed"],
        dead=finals["dead"],
        refused=sum(call.outcome in ("lost", "gone") for call in judgement.calls),
        kills=sum(hurt.killed for hurt in judgement.hurts),
        effective_kills=sum(_hit(hurt, judgement.calls) for hurt in judgement.hurts),
    )
    for kind, count in judgement.kinds.items():
        examples = [breach.example for breach in judgement.breaches if breach.kind == kind][:EXAMPLES]
        verdict.failures.append(f"{kind}: {count}; e.g. " + "; ".join(examples))
        if name := COUNTED_AS.get(kind):
            setattr(verdict, name, getattr(verdict, name) + count)
    _note(verdict, judgement)
    return verdict


def _hit(hurt: Hurt, calls: Sequence[Call]) -> bool:
    """Whether a signal came in the middle of a call, or while the process held a message."""
    return any(
        call.process == hurt.process and call.began < hurt.began < call.ended + (call.lease if call.given else 0.0)
        for call in calls
    )


def _note(verdict: Verdict, judgement: Judgement) -> None:
    verdict.notes["calls"] = len(judgement.calls)
    verdict.notes["stops"] = sum(not hurt.killed for hurt in judgement.hurts)
    tried = Counter((call.op, call.outcome) for call in judgement.calls)
    for op in sorted({op for op, _ in tried}):
        verdict.notes[op] = ", ".join(
            f"{count} {outcome}" for (of, outcome), count in sorted(tried.items()) if of == op
        )
    for story in judgement.stories:
        verdict.notes[f"messages of {story.name}"] = len(story.messages)
        verdict.notes[f"drained from {story.name}"] = len(story.rest.drained)
        copies = sum(bool(message.origin) for message in story.messages.values())
        verdict.notes[f"replayed on {story.name}"] = copies
        verdict.notes[f"expired on {story.name}"] = sum(each.error == EXPIRED for each in story.rest.final.values())
