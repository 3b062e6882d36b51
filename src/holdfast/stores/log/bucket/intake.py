"""Which blocks a commit on a bucket takes into the head: from a list that serves many claims, and not all it shows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .. import bundles, intake, queues
from ..head.machine import wanted
from ..head.state import Absorb, Head, ListTicket
from ..space import Reading, Transaction
from .listing import Late, Listing

if TYPE_CHECKING:
    from ..edit import Seen

_PAGE = 1000
_AHEAD = 4  # times what a claim asks for is absorbed where lists are dear
_AHEAD_MOST = 4000
_AHEAD_BLOCKS = 16


def absorbable_late(survey: intake.Survey, tx: Transaction, demand: int, late: Late) -> intake.Absorbable:
    """The log, and the blocks to absorb for claims of so many messages: not everything that a list shows may be.

    A list costs as much as the commit. So it serves all claims that follow at once, as far as it shows enough.
    """
    listing = late.listing()
    if listing is not None:
        seen, _ = survey(tx, intake.no_ranges)
        absorb = None if seen.rules.paused else _from_list(tx, seen, listing, demand, late, enough=True)
        if absorb is not None:
            return seen, absorb, listing.next_due
    seen, listing = list_late(survey, tx, demand, late)
    if seen.rules.paused:
        return seen, Absorb([], seen.ticket), None
    return seen, _from_list(tx, seen, listing, demand, late) or Absorb([], seen.ticket), listing.next_due


def list_late(survey: intake.Survey, tx: Transaction, demand: int, late: Late) -> tuple[Seen, Listing]:
    """The log, and a list of it for claims of so many messages, in one trip."""
    additions = late.additions
    seen, found = intake.named(survey)(tx, ranges_at(tx.now, demand))
    listing = _listing_of(tx, seen.root, seen.ticket, found, seen.head.held + _look(demand))
    if not seen.rules.paused:
        late.listed(listing, additions)
    return seen, listing


def look_ahead(view: Reading, config: str, root: str, head: Head, demand: int) -> Listing:
    """A list for claims that will follow; the head is one that was there before it."""
    ticket = head.ticket()
    ranges_of = ranges_at(view.now, demand)
    found = intake.without_unnamed(lambda more: view.survey([config], intake.longer(ranges_of(root, head), more))[1])
    return _listing_of(view, root, ticket, found, head.held + _look(demand))


def _listing_of(view: Reading, root: str, ticket: ListTicket, found: list[list[str]], asked: int) -> Listing:
    """What was just listed by `ranges_at`, of the inbox so many keys at most; the ticket is from before."""
    inbox, due, coming = found
    cut = len(root)
    made = {key[cut:]: view.made(key) for key in (*inbox, *due)}
    due_at = intake.soonest(view, coming)
    upto = intake.end_of(inbox, asked)[cut:]
    return Listing(root, ticket, made, upto, due_at)


def _from_list(
    tx: Transaction, seen: Seen, listing: Listing, demand: int, late: Late, *, enough: bool = False
) -> Absorb | None:
    """What to absorb; None: the list is of no use to this head, or, with `enough`, it does not show so many."""
    head = seen.head
    if listing.root != seen.root:
        return None
    if listing.ticket != head.ticket():  # nothing may be absorbed from it
        return Absorb([], listing.ticket) if enough and _comes_first(seen, listing, demand) else None
    listed = late.choose(tx, listing, head, seen.rules, beside=queues.beside(seen.root, seen.config))
    if enough and not wanted(head, listed.blocks, demand, seen.rules, upto=listing.upto)[1]:
        return None
    chosen, _ = wanted(head, listed.blocks, min(_AHEAD * demand, max(demand, _AHEAD_MOST)), seen.rules)
    parts = [part for some in listed.bundled.values() for part in some]
    spent = [key for key, some in listed.bundled.items() if some]
    return Absorb([*chosen[: max(_AHEAD_BLOCKS, demand)], *parts], listing.ticket, spent)


def _comes_first(seen: Seen, listing: Listing, demand: int) -> bool:
    """Whether the head holds enough messages that go before everything that it does not know."""
    head = seen.head
    known = head.beyond.refused
    if any(bundles.is_bundle(key) and key not in known for key in listing.made):
        return False
    blocks = [key for key in listing.made if not bundles.is_bundle(key)]
    chosen, enough = wanted(head, blocks, demand, seen.rules, upto=listing.upto)
    return enough and not chosen


def ranges_at(now: float, demand: int) -> intake.RangesOf:
    """The keys that claims of so many messages may need."""
    return partial(intake.ranges, now, _look(demand))


def _look(demand: int) -> int:
    """How many keys of the inbox to look at, beyond those that are held: others take from the same."""
    return min(2 * demand, _PAGE)
