"""Which blocks a commit takes into the head: those that the waiting claims need, with as few looks as possible."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from . import names
from .head.machine import untouched, wanted
from .head.state import Absorb, Head, Rules
from .space import LAST, Range, Reading, Transaction

if TYPE_CHECKING:
    from .edit import Seen

_PAGE = 1000
_DUE_PAGE = 200
_FEW = 32

RangesOf: TypeAlias = Callable[[str, Head], list[Range]]  # of a log's root, and its head as last known
Survey: TypeAlias = "Callable[[Reading, RangesOf], tuple[Seen, list[list[str]]]]"
Absorbable: TypeAlias = "tuple[Seen, Absorb, float | None]"  # also when the next block under `later/` is due


def no_ranges(root: str, head: Head) -> list[Range]:
    """To look at a log without a list."""
    return []


def unlisted(survey: Survey, tx: Transaction) -> Absorbable:
    """The log, and nothing to absorb."""
    seen, _ = survey(tx, no_ranges)
    return seen, Absorb([], seen.ticket), None


def absorbable(survey: Survey, tx: Transaction, demand: int) -> Absorbable:
    """The log, and the blocks to absorb for claims of so many messages."""
    seen, (inbox, later, dated) = survey(tx, _first_ranges)
    nothing = Absorb([], seen.ticket)
    if seen.rules.paused:
        return seen, nothing, None
    next_due = soonest(tx, later, dated)
    if next_due is None or next_due > tx.now:  # nothing beside the inbox
        if not inbox:
            return seen, nothing, next_due
        key = _first_left(seen, inbox)
        block = seen.head.block_at(key)
        if block is None and key:
            name = names.parse_block(key)
            if name.serves(demand) and not name.expires:
                return seen, Absorb([key], seen.ticket), next_due
        if block is not None and block.name.serves(demand) and block.ready(tx.now, seen.rules) >= demand:
            return seen, nothing, next_due
    return _listed(survey, tx, demand)


def _first_left(seen: Seen, inbox: list[str]) -> str:
    """The first of these keys that is not one of a block of which all has been taken; empty: there is none."""
    taken = {block.key for block in seen.head.blocks.values() if block.next >= block.name.count}
    cut = len(seen.root)
    return next((key[cut:] for key in inbox if key[cut:] not in taken), "")


def _listed(survey: Survey, tx: Transaction, demand: int) -> Absorbable:
    """The same, when one block is not enough."""
    most = min(demand, _PAGE)
    look = min(demand, _FEW)  # most blocks hold many messages: a few keys will do, or all are looked at
    lapsed = False
    while True:
        seen, (inbox, due, coming, dated, dated_coming) = survey(tx, partial(_all_ranges, tx, look))
        cut = len(seen.root)
        upto = end_of(inbox, seen.head.held + look)
        keys = [key[cut:] for key in inbox + due + dated]
        chosen, enough = wanted(seen.head, keys, demand, seen.rules, upto=upto)
        if not lapsed and any(names.lapse_of(key, tx.calendar) <= tx.now for key in chosen):
            lapsed, most = True, _PAGE  # they give nothing: what is behind them counts
        if enough or look == most or not upto:
            return seen, Absorb(chosen, seen.ticket), soonest(tx, coming, dated_coming)
        look = most


def absorbable_named(survey: Survey, tx: Transaction, demand: int) -> Absorbable:
    """The same where keys are listed that say nothing, and whoever claims goes on without them."""
    seen, _ = survey(tx, _first_ranges)
    return (seen, Absorb([], seen.ticket), None) if seen.rules.paused else _listed(named(survey), tx, demand)


def named(survey: Survey) -> Survey:
    """A survey without such keys."""

    def look(view: Reading, ranges_of: RangesOf) -> tuple[Seen, list[list[str]]]:
        seen: list[Seen] = []

        def ask(more: int) -> list[list[str]]:
            last, found = survey(view, lambda root, head: longer(ranges_of(root, head), more))
            seen.append(last)
            return found

        found = without_unnamed(ask)
        return seen[-1], found

    return look


def without_unnamed(ask: Callable[[int], list[list[str]]]) -> list[list[str]]:
    """Only keys that say something; `ask` lists so many more, for those that are left out."""
    more = 0
    while True:
        listed = ask(more)
        named = [[key for key in keys if names.is_block(key)] for keys in listed]
        left_out = sum(map(len, listed)) - sum(map(len, named))
        if left_out <= more:
            return named
        more = left_out


def longer(ranges: list[Range], more: int) -> list[Range]:
    """The same, with so many more keys of each."""
    return [(first, end, most + more) for first, end, most in ranges]


def end_of(inbox: list[str], asked: int) -> str:
    """The last key of an inbox that may go on behind it; empty: it was listed to its end."""
    return inbox[-1] if len(inbox) >= asked else ""


def soonest(view: Reading, *found: list[str]) -> float | None:
    """When the first of these blocks is due."""
    return min((names.due_of(keys[0], view.calendar) for keys in found if keys), default=None)


def _first_ranges(root: str, head: Head) -> list[Range]:
    """One key each; in the inbox, the first behind blocks of which all has been taken: they lie there till they end."""
    inbox, later = root + "inbox/", root + "later/"
    dated = later + names.UNDATED_END
    taken = len(head.blocks) - len(untouched(head))
    return [(inbox, inbox + LAST, 1 + taken), (later, dated, 1), (dated, later + LAST, 1)]


def _all_ranges(view: Reading, demand: int, root: str, head: Head) -> list[Range]:
    """The same as `ranges`, and what is due by the calendar, and the next one that is not."""
    later = root + "later/"
    inbox, undated, (due, _, one) = ranges(view.now, demand, root, head)
    dated = f"{later}{names.DATED + int(view.calendar.wall(view.now) * 1000) + 1:015d}"
    first = later + names.UNDATED_END
    return [inbox, undated, (due, first, one), (first, dated, undated[2]), (dated, later + LAST, one)]


def ranges(now: float, demand: int, root: str, head: Head) -> list[Range]:
    """The first keys of the inbox, of what is due, and the next one that is not; absorbed blocks are among them."""
    inbox, later = root + "inbox/", root + "later/"
    due = f"{later}{int(now * 1000) + 1:015d}"
    # What is due lies by time, not by priority: a page of it, or an urgent one might not be seen.
    page = head.held + max(demand, _DUE_PAGE)
    return [(inbox, inbox + LAST, head.held + demand), (later, due, page), (due, later + LAST, 1)]


def next_due(head: Head, rules: Rules, later: float | None) -> float | None:
    """When a waiting claim should look again by itself."""
    if rules.paused:
        return None
    instants = [lease.over_at(rules) for lease in head.leases if not lease.is_over(head.now, rules)]
    if later is not None:
        instants.append(later)
    instants += [block.due_at(rules) for block in head.blocks.values() if not block.is_due(head.now, rules)]
    instants += [group.due_at(rules) for group in head.waiting if not group.is_due(head.now, rules)]
    return min(instants, default=None)
