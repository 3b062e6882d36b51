"""The head: the only mutable object of a log, and what a commit makes of it. Pure: no I/O, no clock, no randomness."""

from __future__ import annotations

from typing import Any, NamedTuple

from .keys import Flush, Key, Log
from .rules import LEASE, SESSION, SPILL, E, Rules

Head = dict[str, Any]


class State(NamedTuple):
    """One message of an absorbed block."""

    kind: str  # new, leased, retry, settled, frozen, dropped
    attempts: int = 0
    token: tuple[int, ...] = ()
    until: int = 0  # end of the lease, or when a retry is due
    outcome: str = ""  # completed, dead, moved; retry: it leaves as a spilled retry


DROPPED = State("dropped")


class Frozen(NamedTuple):
    """The rows of a flush and all its names, fixed in one swap."""

    flush: Flush
    file: tuple[int, ...]
    rows: tuple[tuple[Key, int, State], ...]
    births: tuple[int, ...]  # of the blocks it writes: dead letters first, then one for each spilled retry

    def of(self, outcome: str) -> list[tuple[Key, int, State]]:
        return [row for row in self.rows if row[2].outcome == outcome]


# What a client wants of the head.


class Settle(NamedTuple):
    key: Key
    place: int
    token: tuple[int, ...]
    action: str  # complete, retry, release, dead, moved
    delay: int = 0


class Extend(NamedTuple):
    key: Key
    place: int
    token: tuple[int, ...]


class Absorb(NamedTuple):
    found: tuple[tuple[Key, int], ...]  # with created_at
    forgets: int  # of the head that was read before the list


class SetAside(NamedTuple):
    found: tuple[tuple[Key, int], ...]  # with created_at


class Bury(NamedTuple):
    keys: tuple[Key, ...]  # that were set aside and copied


class Purge(NamedTuple):
    at: int
    forgets: int
    call: Any  # what the ghost knows of it


class Claim(NamedTuple):
    token: tuple[int, ...]
    limit: int


class Fire(NamedTuple):
    slot: int
    seen: int  # the mark as it was when this was decided
    key: Key


class Rewrite(NamedTuple):
    key: Key
    place: int
    new: Key


class Freeze(NamedTuple):
    flush: int
    file: tuple[int, ...]


class Renew(NamedTuple):
    flush: int
    block: int  # which of the frozen set's blocks gets a new birth
    old: int


class Drop(NamedTuple):
    flush: int


class Forget(NamedTuple):
    keys: tuple[Key, ...]


def fresh_head() -> Head:
    return {
        "nonce": None,
        "now": 0,
        "sessions": {},
        "blocks": {},
        "graveyard": {},
        "aside": {},  # late blocks, with created_at, until they are copied
        "forgets": 0,
        "purges": 0,
        "purged_at": 0,
        "frozen": None,
        "slot": 0,  # the mark of a schedule: its last slot
        "cursors": {},  # only without A2
        "ended": 0,  # the counter of stats(): messages completed, dead or moved
    }


def apply(head: Head, intents: list[Any], now: int, *, log: Log, most: int, rules: Rules) -> tuple[Head, list[Any]]:
    """The new head and a result for each intent; the same head when nothing changes."""
    work = _Work(head, now, log, most, rules)
    results: dict[int, Any] = {}
    for kind in _ORDER:
        for place, intent in enumerate(intents):
            if type(intent) is kind:
                results[place] = _VERBS[kind](work, intent)
        if kind is Absorb and any(type(each) in (Claim, Settle) for each in intents):
            _expire(work)
    work.bury()
    return (work.head if work.changed else head), [results[place] for place in range(len(intents))]


class _Work:
    """A copy of the head that is being changed."""

    def __init__(self, head: Head, now: int, log: Log, most: int, rules: Rules) -> None:
        self.head = {
            **head,
            "blocks": dict(head["blocks"]),
            "graveyard": dict(head["graveyard"]),
            "aside": dict(head["aside"]),
        }
        self.now = self.head["now"] = max(head["now"], now)
        self.log = log
        self.most = most
        self.rules = rules
        self.changed = False
        self._touched: dict[Key, None] = {}

    def state(self, key: Key, place: int) -> State:
        states = self.head["blocks"].get(key)
        return states[place] if states else DROPPED

    def put(self, key: Key, place: int, state: State) -> None:
        states = self.head["blocks"][key]
        self.head["blocks"][key] = (*states[:place], state, *states[place + 1 :])
        self._touched[key] = None
        self.changed = True

    def end(self, key: Key, place: int, state: State) -> None:
        """The one place where a message is counted as ended."""
        self.head["ended"] += 1
        self.put(key, place, state)

    def over(self, state: State) -> bool:
        """The lease is over, also for a holder whose clock is slow."""
        return self.now >= state.until + (2 * E if self.rules.C3_lease_margin else 0)

    def bury(self) -> None:
        """F6: a block enters the graveyard in the drop that drops its last row."""
        gone = ("dropped",) if self.rules.F6_buried_at_drop else ("dropped", "settled", "frozen")
        for key in self._touched:
            states = self.head["blocks"].get(key, ())
            if states and all(state.kind in gone for state in states):
                if all(state.kind == "dropped" for state in states):
                    del self.head["blocks"][key]
                if self.rules.G1_graveyard:
                    self.head["graveyard"][key] = None


def _settle(work: _Work, intent: Settle) -> bool:
    """Only the current token changes anything."""
    state = work.state(intent.key, intent.place)
    if state.kind != "leased" or state.token != intent.token:
        return False
    spent = state.attempts >= work.most and work.log[1] != "dead"  # dead letters have no dead letters
    if intent.action == "release":
        work.put(intent.key, intent.place, State("retry", state.attempts - 1, (), work.now))
    elif intent.action == "retry" and not spent:
        work.put(intent.key, intent.place, State("retry", state.attempts, (), work.now + intent.delay))
    else:
        outcome = {"complete": "completed", "moved": "moved"}.get(intent.action, "dead")
        work.end(intent.key, intent.place, State("settled", state.attempts, intent.token, 0, outcome))
    return True


def _extend(work: _Work, intent: Extend) -> bool:
    state = work.state(intent.key, intent.place)
    if state.kind != "leased" or state.token != intent.token:
        return False
    work.put(intent.key, intent.place, state._replace(until=max(state.until, work.now + LEASE)))
    return True


def _absorb(work: _Work, intent: Absorb) -> None:
    """A6: never blindly from an old list. A3 was judged by the lister: both its times stand in the list."""
    head, rules = work.head, work.rules
    if rules.A6_forgets and intent.forgets != head["forgets"]:
        return
    for key, created_at in intent.found:
        if rules.A6_known and is_known(head, key):
            continue
        if rules.A4_purged_at and max(key.birth, created_at) < head["purged_at"]:
            continue
        if not may_come(head, key, work.log, rules):
            continue
        if key.parts:
            for number in range(key.parts):
                head["blocks"][key.part(number)] = (State("new"),)
            head["graveyard"][key] = None
        else:
            head["blocks"][key] = (State("new", key.attempts),) * key.count
        if not rules.A2_from_the_start and key.folder == "inbox":
            last = head["cursors"].get(key.priority, key.order)
            head["cursors"] = {**head["cursors"], key.priority: max(last, key.order)}
        work.changed = True


def is_known(head: Head, key: Key) -> bool:
    return key in head["blocks"] or key in head["graveyard"] or key in head["aside"]


def was_absorbed(head: Head, key: Key) -> bool:
    return key in head["blocks"] or head["graveyard"].get(key, "late") != "late"


def _set_aside(work: _Work, intent: SetAside) -> None:
    """From now on nobody absorbs them; not what the head knows: another epoch may have let it pass.

    From an old list it is harmless: what was finished and forgotten since has no object to be copied.
    """
    for key, created_at in intent.found:
        if not is_known(work.head, key):
            work.head["aside"][key] = created_at
            work.changed = True


def _bury(work: _Work, intent: Bury) -> None:
    for key in intent.keys:
        if work.head["aside"].pop(key, None) is not None:
            parts = [key.part(number) for number in range(key.parts)]
            buried = [key, *(part for part in parts if part not in work.head["blocks"])]  # it may come a second time
            if work.rules.A3_bury_before_delete:
                work.head["graveyard"].update(dict.fromkeys(buried, "late"))
            work.changed = True


def may_come(head: Head, key: Key, log: Log, rules: Rules) -> bool:
    """Blocks that a flush of this log wrote come back only when its rows are dropped, and not after a purge."""
    if key.flush is None or key.flush.log != log:
        return True
    frozen = head["frozen"]
    if rules.F4_absorbed_after_drop and frozen is not None and frozen.flush.id == key.flush.id:
        return False
    return not (rules.purge_spilled and is_purged(head, key, log))


def is_purged(head: Head, key: Key, log: Log) -> bool:
    """A retry that was frozen before a purge."""
    return key.flush is not None and key.flush.log == log and key.flush.purges < head["purges"]


def _purge(work: _Work, intent: Purge) -> bool:
    """Everything that nobody holds is dropped: new, retrying, and leases that are over. False: the list is old."""
    if work.rules.A6_forgets and intent.forgets != work.head["forgets"]:
        return False
    for key, states in list(work.head["blocks"].items()):
        for place, state in enumerate(states):
            if state.kind in ("new", "retry") or (state.kind == "leased" and work.over(state)):
                work.put(key, place, DROPPED)
    work.head["purged_at"] = max(work.head["purged_at"], intent.at)
    work.head["purges"] += 1
    work.changed = True
    return True


def _fire(work: _Work, intent: Fire) -> str:
    """S1: mark and message in one swap. S2: only if nobody has moved the mark."""
    head = work.head
    if work.rules.S2_mark_compared and head["slot"] != intent.seen:
        return "refused"
    head["slot"] = max(head["slot"], intent.slot)
    if intent.key.folder == "staged":
        head["blocks"][intent.key] = (State("new"),)
    work.changed = True
    return "stored"


def _rewrite(work: _Work, intent: Rewrite) -> bool:
    """Only what nobody holds, and that has been claimed as often as its new block says."""
    state = work.state(intent.key, intent.place)
    waits = state.kind in ("new", "retry") or (not work.rules.change_only_waiting and state.kind == "leased")
    if not waits or state.attempts != intent.new.attempts:
        return False
    work.put(intent.key, intent.place, DROPPED)
    if not is_known(work.head, intent.new):
        work.head["blocks"][intent.new] = (State("new", state.attempts),)
    return True


def _expire(work: _Work) -> None:
    """A lease is over and its attempts are used up: dead."""
    for key, states in list(work.head["blocks"].items()):
        for place, state in enumerate(states):
            spent = state.attempts >= work.most and work.log[1] != "dead"
            if state.kind == "leased" and spent and work.over(state):
                work.end(key, place, State("settled", state.attempts, (), 0, "dead"))


def _claim(work: _Work, intent: Claim) -> list[tuple[Key, int]]:
    """Priority, block, place: over new messages, due retries and expired leases alike."""
    taken: list[tuple[Key, int]] = []
    for key in sorted(work.head["blocks"], key=lambda each: each.order):
        for place, state in enumerate(work.head["blocks"][key]):
            free = state.kind == "new" or (state.kind == "retry" and state.until <= work.now)
            if len(taken) < intent.limit and (free or (state.kind == "leased" and work.over(state))):
                work.put(key, place, State("leased", state.attempts + 1, intent.token, work.now + LEASE))
                taken.append((key, place))
    return taken


def _freeze(work: _Work, intent: Freeze) -> None:
    """F1: rows and names in one swap. Far retries leave too."""
    head = work.head
    if head["frozen"] is not None:
        return
    rows = []
    for key, states in head["blocks"].items():
        for place, state in enumerate(states):
            if state.kind == "settled":
                rows.append((key, place, state))
            elif state.kind == "retry" and state.until > work.now + SPILL:
                rows.append((key, place, state._replace(outcome="retry")))
    if not rows:
        return
    for key, place, state in rows:
        work.put(key, place, state._replace(kind="frozen"))
    blocks = 1 + sum(state.outcome == "retry" for _, _, state in rows)
    flush = Flush(work.log, intent.flush, head["purges"])
    head["frozen"] = Frozen(flush, intent.file, tuple(rows), (work.now,) * blocks)


def _renew(work: _Work, intent: Renew) -> None:
    """A block that was not created within R of its birth is given a new one; who sleeps with the old one is fenced."""
    frozen = work.head["frozen"]
    if frozen is None or frozen.flush.id != intent.flush or intent.old not in frozen.births[intent.block :][:1]:
        return
    births = list(frozen.births)
    births[intent.block] = work.now
    work.head["frozen"] = frozen._replace(births=tuple(births))
    work.changed = True


def _drop(work: _Work, intent: Drop) -> bool:
    """F5: only if the frozen set is still there."""
    frozen = work.head["frozen"]
    if frozen is None or (work.rules.F5_drop_if_same and frozen.flush.id != intent.flush):
        return False
    for key, place, _ in frozen.rows:
        if key in work.head["blocks"]:
            work.put(key, place, DROPPED)
    work.head["frozen"] = None
    work.changed = True
    return True


def _forget(work: _Work, intent: Forget) -> None:
    """G2: each forget counts."""
    for key in intent.keys:
        if key in work.head["graveyard"]:
            del work.head["graveyard"][key]
            work.head["forgets"] += 1
            work.changed = True


def sign(head: Head, me: str, seq: int, attempt: int) -> Head:
    """C3: a fresh nonce, my session, and old sessions dropped."""
    sessions = {who: entry for who, entry in head["sessions"].items() if entry[2] >= head["now"] - SESSION}
    sessions[me] = (seq, attempt, head["now"])
    return {**head, "nonce": attempt, "sessions": sessions}


_VERBS: dict[type, Any] = {
    Settle: _settle,
    Extend: _extend,
    Absorb: _absorb,
    SetAside: _set_aside,
    Bury: _bury,
    Purge: _purge,
    Fire: _fire,
    Rewrite: _rewrite,
    Claim: _claim,
    Freeze: _freeze,
    Renew: _renew,
    Drop: _drop,
    Forget: _forget,
}
_ORDER = tuple(_VERBS)
