"""Which parts of a chord have returned: one that returns twice counts once, and one of them calls the body.

A small chord is one value. In a large one, parts would rewrite a growing value one after the other; its parts are known
when it is sent, so they are laid out in leaves by then, and a part touches only its own. The root notes full leaves.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from ..stores.values import ABSENT
from .routing import changed

if TYPE_CHECKING:
    from .link import Link

LEAF_PARTS = 64  # share a value: with half as many there are twice the values, with twice twice the bytes a part
_PART_BYTES = 8  # of a part's id: enough to tell a million of them apart
_JOINED = b"joined"  # in place of the root: the body was called


class Root(msgspec.Struct, frozen=True, array_like=True):
    """Of a chord whose body was not called yet."""

    planned: int = 0  # parts that are laid out in leaves; 0: no leaves
    leaves: int = 0  # that have a part at all
    seen: bytes = b""  # without leaves the parts that have returned, with leaves a bit for each that is full
    joiner: bytes = b""  # the part that calls the body; only its repeat may do it again


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """Some parts, and a bit for each that has returned."""

    parts: bytes
    seen: bytes = b""


class Chord:
    """One chord, by the key of its root; `size` parts in all."""

    def __init__(self, link: Link, key: str, size: int, *, expires_in: float | None) -> None:
        self._link = link
        self._key = key
        self._size = size
        self._expires_in = expires_in

    async def plan(self, parts: Sequence[str]) -> None:
        """Before any part is sent. Doing it again is harmless: who sends the chord may be killed and repeat it."""
        [root] = await self._link.values.get([self._key])
        if root is not None:
            return
        leaves: dict[int, list[bytes]] = defaultdict(list)
        for part in dict.fromkeys(_short(part) for part in parts):
            leaves[self._leaf_of(part)].append(part)
        await asyncio.gather(
            *(self._put(self._leaf_key(number), Leaf(b"".join(own))) for number, own in leaves.items())
        )
        await self._put(self._key, Root(self._size, len(leaves)))

    async def returned(self, id: str) -> bool:
        """This part has; True: all have, and it is this one that calls the body."""
        part = _short(id)
        is_large = self._size > LEAF_PARTS
        keys = [self._key, self._leaf_key(self._leaf_of(part))] if is_large else [self._key]
        data = (await self._link.values.get(keys))[0]
        if data is not None and data.data == _JOINED:
            return False
        root = Root() if data is None else _root(data.data)
        if root.planned != self._size or not is_large:
            return await self._note(part, lambda root: _with_part(root, part), lambda root: _parts(root) >= self._size)
        number = self._leaf_of(part)
        if not await self._fill(number, part):
            return False
        return await self._note(
            part,
            lambda root: msgspec.structs.replace(root, seen=_with_bit(root.seen, number)),
            lambda root: _bits(root.seen) >= root.leaves,
        )

    async def _fill(self, number: int, part: bytes) -> bool:
        """Whether all parts of the leaf have returned."""
        full = False

        def step(data: bytes | None) -> bytes | None:
            nonlocal full
            leaf = Leaf(b"") if data is None else _leaf(data)
            at = next((at for at in range(0, len(leaf.parts), _PART_BYTES) if leaf.parts.startswith(part, at)), None)
            if at is None:
                full = False
                return None
            seen = _with_bit(leaf.seen, at // _PART_BYTES)
            full = _bits(seen) * _PART_BYTES >= len(leaf.parts)
            return None if seen == leaf.seen else msgspec.msgpack.encode(Leaf(leaf.parts, seen))

        await changed(self._link, self._leaf_key(number), step, expires_in=self._expires_in)
        return full

    async def _note(self, part: bytes, add: Callable[[Root], Root], is_complete: Callable[[Root], bool]) -> bool:
        """Change the root; whether the part calls the body."""
        mine = False

        def step(data: bytes | None) -> bytes | None:
            nonlocal mine
            mine = False
            if data == _JOINED:
                return None
            before = Root() if data is None else _root(data)
            after = add(before)
            if is_complete(after):
                after = msgspec.structs.replace(after, joiner=after.joiner or part)
                mine = after.joiner == part
            return None if after == before else msgspec.msgpack.encode(after)

        await changed(self._link, self._key, step, expires_in=self._expires_in)
        return mine

    async def _put(self, key: str, value: Root | Leaf) -> None:
        """Where nothing is."""
        data = msgspec.msgpack.encode(value)
        await self._link.values.put(key, data, expected=ABSENT, expires_in=self._expires_in)

    def _leaf_of(self, part: bytes) -> int:
        return int.from_bytes(part, "big") % _leaf_count(self._size)

    def _leaf_key(self, number: int) -> str:
        return _leaf_key(self._key, number)


async def joined(link: Link, key: str, *, expires_in: float | None) -> None:
    """The body of this chord was called: nothing more counts."""
    [found] = await link.values.get([key])
    await link.values.put(key, _JOINED, expires_in=expires_in)
    planned = 0 if found is None or found.data == _JOINED else _root(found.data).planned
    await link.values.delete([_leaf_key(key, number) for number in range(_leaf_count(planned))])


_root = msgspec.msgpack.Decoder(Root).decode
_leaf = msgspec.msgpack.Decoder(Leaf).decode


def _leaf_key(key: str, number: int) -> str:
    return f"{key}/{number}"


def _leaf_count(parts: int) -> int:
    return -(-parts // LEAF_PARTS)


def _short(part: str) -> bytes:
    return blake2b(part.encode(), digest_size=_PART_BYTES).digest()


def _with_part(root: Root, part: bytes) -> Root:
    parts = [root.seen[at : at + _PART_BYTES] for at in range(0, len(root.seen), _PART_BYTES)]
    return root if part in parts else msgspec.structs.replace(root, seen=root.seen + part)


def _parts(root: Root) -> int:
    return len(root.seen) // _PART_BYTES


def _with_bit(bits: bytes, number: int) -> bytes:
    changed_bits = int.from_bytes(bits, "little") | 1 << number
    return changed_bits.to_bytes(max(len(bits), number // 8 + 1), "little")


def _bits(bits: bytes) -> int:
    return int.from_bytes(bits, "little").bit_count()
