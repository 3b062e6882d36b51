"""The checks of the head are worth something: each of these small mistakes in `machine.py` makes one of them fail."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.stores.log.head.head_bench import SOURCE, compiled
from tests.stores.log.head.head_checks import CHECKS

MUTATIONS = {
    "a stale token settles": (
        "if each.token == intent.token and each.block == intent.block]:\n        part = lease.mask & intent.mask\n"
        "        if part:\n            held",
        "if each.block == intent.block]:\n        part = lease.mask & intent.mask\n        if part:\n            held",
    ),
    "a repeated settlement is lost": ("else held | _repeated(head, intent)", "else held"),
    "a repeat may say the opposite": (" and group.status in LEADS_TO[intent.action]:", ":"),
    "a repeated retry is lost once it is frozen": ("*head.waiting, *frozen.waiting]", "*head.waiting]"),
    "a repeated retry is lost once it was claimed": (
        "        _remember(head, source.group.token, block.no, part, source.group.status)\n",
        "",
    ),
    "an expired message is given": (
        "    for block in lapsed(head):\n        ended += _lapse(head, block, rules)\n",
        "",
    ),
    "a message expires too late": ("if block.until <= head.now]", "if block.until < head.now]"),
    "what expires in other blocks too": (
        "in _unheld(head, rules) if group.block == block.no]\n    if block.fresh",
        "in _unheld(head, rules)]\n    if block.fresh",
    ),
    "what has expired is told and lives on": (
        "    _remove(head, Remove(block.no, bits.span(0, block.name.count), LAPSED), rules)\n",
        "",
    ),
    "an expired block is taken for a full one": (
        "rules.calendar) > now else 0",
        "rules.calendar) > now else name.count",
    ),
    "a spent retry comes back": ('(intent.action == "retry" and not spent)', 'intent.action == "retry"'),
    "a retry too few": ("spent = lease.attempts >=", "spent = lease.attempts + 1 >="),
    "a release costs an attempt": ('lease.attempts - (intent.action == "release")', "lease.attempts"),
    "a delay is forgotten": ("        return head.now + delay\n", "        return head.now\n"),
    "a delay is counted from the time of another process": (
        "return (rules.now or head.now) + lasting(delay)",
        "return head.now + lasting(delay)",
    ),
    "others wait for what was given back at once": ("if delay > 0 else 0.0", "if delay >= 0 else 0.0"),
    "a retry of another process comes without a margin": (
        "        if not group.is_due(head.now, rules):\n            continue\n",
        "",
    ),
    "a block counts that is not due yet": (
        "count if Block.of(0, key).is_due(now, rules) else 0",
        "count",
    ),
    "a crash is forgotten by a retry": (
        "due, attempts, lease.crashed, intent.error",
        "due, attempts, False, intent.error",
    ),
    "waiting messages in any order": (
        "insort(head.waiting, group, key=lambda each: each.due)",
        "head.waiting.append(group)",
    ),
    "keep=False keeps": ('if status == "completed" and intent.keep is not None', "if False"),
    "keep=False loses a dead letter": (
        'if status == "completed" and intent.keep is not None',
        "if intent.keep is not None",
    ),
    "no archive, no dead letters": ('rules.archive or status in ("dead", "moved")', "rules.archive"),
    "results at the wrong places": (
        "for place in bits.places(part)] if intent",
        "for place in range(part.bit_count())] if intent",
    ),
    "dead counts as failed": ('elif group.status != "dead":', "else:"),
    "what is kept is gone as well": (
        "        head.settled.append(group)\n",
        "        head.settled.append(group)\n        head.lose(group.block, count)\n",
    ),
    "the memory of tokens grows": ("    del head.recent[:-RECENT_MOST]\n", ""),
    "the memory of tokens loses the newest": ("del head.recent[:-RECENT_MOST]", "del head.recent[RECENT_MOST:]"),
    "an outcome forgets when it was claimed": (
        "intent.token, results, lease.claimed",
        "intent.token, results, head.now",
    ),
    "an expired lease forgets when it began": (
        'EXPIRED, lease.worker, "", None, lease.claimed',
        'EXPIRED, lease.worker, "", None, head.now',
    ),
    "a lease begins when it ends": ("source.crashed, head.now, worker))", "source.crashed, expires, worker))"),
    "an extension shortens": ("if part and expires > lease.expires:", "if part:"),
    "an extension reaches its neighbours": (
        "_take(head.leases, lease, part)\n            head.leases.append(msgspec.structs.replace(lease, mask=part,",
        "_take(head.leases, lease, lease.mask)\n            head.leases.append(msgspec.structs.replace(lease,",
    ),
    "a cancelled message stays fresh": ("skip=block.skip | fresh)\n    _removed", "skip=block.skip)\n    _removed"),
    "a cancelled retry comes back": ("            _take(groups, group, part)\n", ""),
    "a held message is cancelled": (
        "if held else _over(head, rules)\n",
        "if held else head.leases\n",
    ),
    "a cancel reaches other blocks": ("if group.block == intent.block else 0", "if group else 0"),
    "a deleted message counts as failed": ("    elif intent.error is None:\n", "    elif intent.error == 0:\n"),
    "a purged retry comes back": (
        "        _take(groups, group, group.mask)\n        head.lose(",
        "        head.lose(",
    ),
    "what is purged is not gone": (
        "        head.lose(group.block, group.mask.bit_count())\n    return sum",
        "    return sum",
    ),
    "waiting messages cannot be removed": (" + [(head.waiting, each) for each in head.waiting]", ""),
    "absorbed twice": ("new = repeat.absorbable(head, intent)", "new = list(intent.keys)"),
    "numbers are reused": ("        head.serial += 1\n", "        head.serial = len(head.blocks) + 1\n"),
    "leases end too early": (
        "for lease in head.leases if lease.is_over(head.now, rules)]",
        "for lease in head.leases if lease.is_over(head.now - 1, rules)]",
    ),
    "the lease that lasts longest hides the others": ("if min(map(_expires,", "if max(map(_expires,"),
    "a lease that ends now is not over": (
        "> max(head.now, rules.now):\n        return []",
        ">= max(head.now, rules.now):\n        return []",
    ),
    "NoRetry retries": ("not rules.retry_expired or lease.attempts", "lease.attempts"),
    "a paused queue gives": ("    if rules.paused:\n", "    if not rules:\n"),
    "low priority first": (
        "sorted(open_blocks, key=lambda each: each.order)",
        "sorted(open_blocks, key=lambda each: each.no)",
    ),
    "blocks come before their time": (
        "        if block.is_due(head.now, rules):\n            sources",
        "        if True:\n            sources",
    ),
    "retries come before their time": (
        "        if group.due > head.now:\n            break\n"
        "        if not group.is_due(head.now, rules):\n            continue",
        "        if False:\n            break",
    ),
    "a live lease is stolen": (
        "    for lease in _over(head, rules):\n        if not _is_last",
        "    for lease in head.leases:\n        if not _is_last",
    ),
    "a claim takes what has no attempt left": (
        "        if not _is_last(head, lease, rules):\n            sources",
        "        if lease:\n            sources",
    ),
    "an expired lease is no crash": (
        "_Source(lease.mask, lease.attempts, True, lease)",
        "_Source(lease.mask, lease.attempts, False, lease)",
    ),
    "the limit is exceeded": ("room -= chosen.bit_count()", "room -= 0"),
    "nobody runs alone": ("return self.crashed and self.attempts + 1 >= limit", "return False"),
    "alone too early": ("self.attempts + 1 >= limit", "self.attempts + 2 >= limit"),
    "others run with the one that runs alone": (
        "return (loner if first and not before else before), True",
        "return chosen, True",
    ),
    "the one that runs alone comes last": (
        "return (loner if first and not before else before), True",
        "return (loner if first else before), True",
    ),
    "claimed places stay fresh": ("done = part.bit_length()", "done = 0"),
    "the old lease stays": ("        _take(head.leases, source.group, part)\n", "        pass\n"),
    "a retry that was claimed waits on": ("        _take(head.waiting, source.group, part)\n", ""),
    "an attempt is not counted": ("attempt = source.attempts + 1", "attempt = source.attempts"),
    "two sets are frozen": (
        "if head.frozen is not None or not (head.settled or spilled):",
        "if not (head.settled or spilled):",
    ),
    "frozen rows are settled again": ("    head.settled = head.settled[some:]\n", ""),
    "one flush takes everything": ("some = in_one_flush(head.settled)", "some = len(head.settled)"),
    "spilled retries stay as well": ("    head.waiting = head.waiting[: len(head.waiting) - len(spilled)]\n", ""),
    "the nearest retries leave": ("return head.waiting[place:]", "return head.waiting[:place]"),
    "anybody's set is dropped": ("if frozen is None or frozen.flush != intent.flush:", "if frozen is None:"),
    "dropped rows are not gone": (
        "    for group in groups:\n        head.lose(",
        "    for group in groups[:0]:\n        head.lose(",
    ),
    "finished a row too early": ("if block.gone >= block.name.count]", "if block.gone >= block.name.count - 1]"),
    "finished blocks stay": ("    if finished:\n", "    if not head:\n"),
    "the input is changed": ("    head = head.copy()\n", ""),
    "time goes back": ("head.now = max(head.now, now)", "head.now = now"),
    "claims come before what is absorbed": (
        "Absorb, Expire, Claim, Freeze, Drop, *",
        "Claim, Absorb, Expire, Freeze, Drop, *",
    ),
    "expiry comes before the holder": ("_ORDER = (Settle, Extend, ", "_ORDER = (Expire, Settle, Extend, "),
    "what lies beyond the list counts": ("count if order < end else 0", "count"),
    "too many blocks are absorbed": ("        demand -= count\n", "        demand -= 1\n"),
    "blocks are absorbed in any order": ("in sorted(stock):", "in stock:"),
    "a flush is never old enough": ("head.now - head.settled[0].at >= age", "head.now - head.settled[-1].at > age"),
    "results weigh nothing": ("gathered.rows >= rows or gathered.bytes >= HEAVY", "gathered.rows >= rows"),
}


def failing(module: ModuleType) -> list[str]:
    """The checks that a module does not pass."""
    failed = []
    for name, check in CHECKS.items():
        try:
            check(module)
        except Exception:  # noqa: BLE001  whatever a mistake leads to, it was found
            failed.append(name)
    return failed


def test_the_real_source_passes():
    assert failing(compiled(SOURCE)) == []


@pytest.mark.parametrize("mistake", MUTATIONS)
def test_mistake_is_found(mistake: str):
    old, new = MUTATIONS[mistake]
    assert SOURCE.count(old) == 1, "machine.py has changed: write this mistake anew"
    assert failing(compiled(SOURCE.replace(old, new))) != []
