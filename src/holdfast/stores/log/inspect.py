"""Looks at what a store keeps for `holdfast doctor`: whether it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...errors import Damaged
from ..base import Check
from . import archive, bundles, damage, names, queues, rows
from .head import codec
from .queues import Address
from .space import Reading, Space

_BLOCKS = 100  # of each log, the oldest
_FILES = 20  # of each archive, the newest
_FEW = 10  # of both where each is a request that is paid for
_NAMED = 5
_PAGE = 1000


async def damaged(space: Space) -> Check:
    """Heads, options, and some of the blocks and archive files of every queue."""
    keys = await space.read(lambda view: view.list(names.CONFIGS, limit=_PAGE))
    few = space.request_costs
    looked, found, kept = 0, list[str](), list[str]()
    for key in keys:
        count, bad, aside = await space.read(partial(_queue, key=key, few=few))
        looked, found, kept = looked + count, found + bad, kept + aside
    if found:
        more = f" (and {len(found) - _NAMED} more)" if len(found) > _NAMED else ""
        return Check("objects", "fail", "; ".join(found[:_NAMED]) + more)
    if kept:
        text = f"{len(kept)} damaged blocks were set aside, their messages are dead: {', '.join(kept[:_NAMED])}"
        return Check("objects", "warn", f"{text}; restore what you need of them from a backup, then delete them")
    return Check("objects", "ok", f"{looked} objects were read, none is damaged")


def _queue(view: Reading, key: str, few: bool) -> tuple[int, list[str], list[str]]:
    """How many were read, what is damaged, and what was set aside earlier."""
    name, found, kept = names.queue_of(key), list[Damaged | None](), list[str]()
    try:
        stored = view.get(key)
        config = queues.decode(stored.data, name) if stored is not None else None
    except Damaged as error:
        return 1, [str(error)], []
    if config is None or config.closing is not None:
        return 1, [], []
    for root in queues.log_roots(name, config):
        kept += view.list(root + damage.KEPT, limit=_PAGE)
        found += _log(view, root, config, few=few)
    found += _files(view, Address(name, False).archive_root(config), few=few)
    return 1 + len(found), [str(each) for each in found if each is not None], kept


def _log(view: Reading, root: str, config: queues.Config, *, few: bool) -> Iterator[Damaged | None]:
    """One answer for each object: None, or what is wrong with it."""
    try:
        head = view.get(root + "head")
        if head is not None:
            damage.read(root + "head", codec.decode, head.data)
            yield None
        elif queues.is_used(view, root, config):
            yield queues.lost_head(root)
    except Damaged as error:
        yield error
    for folder in ("inbox/", "later/"):
        keys = view.list(root + folder, limit=_PAGE)
        yield from (damage.damaged(key, "its name makes no sense") for key in keys if not names.is_block(key))
        blocks = [key for key in keys if names.is_block(key)]
        yield from (_block(view, key, few=few) for key in blocks[: _FEW if few else _BLOCKS])


def _block(view: Reading, key: str, *, few: bool) -> Damaged | None:
    if bundles.is_bundle(key):
        return _bundle(view, key)
    try:
        stored = view.get(key)
        if stored is None:  # on a bucket it may just have been finished
            return None if few or not view.list(key, limit=1) else damage.missing(key)
        damage.read_block(key, rows.decode, stored.data)
    except Damaged as error:
        return error
    return None


def _bundle(view: Reading, key: str) -> Damaged | None:
    try:
        bundles.parts(view, "", key)
    except Damaged as error:
        return error
    return None


def _files(view: Reading, root: str, *, few: bool) -> Iterator[Damaged | None]:
    yield from archive.unnamed(view, root)
    for file in archive.files(view, root)[-(_FEW if few else _FILES) :]:
        try:
            stored = view.get(file.key)
            if stored is not None:
                archive.read(file.key, stored.data)
            yield None
        except Damaged as error:
            yield error
