"""A call that needs several blocks, where a space has no transactions: the blocks are parts, one bundle commits them.

Parts lie under `parts/<call>/`, where nobody looks. The bundle is created in the inbox and names them; absorbing it
takes all its parts into the head at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from . import damage
from .names import instant_of, parse_block
from .space import Buffer, Reading

_END = ".bundle"
FOLDER = "parts/"
_DECODER = msgspec.msgpack.Decoder(list[str])


class Bundle(msgspec.Struct, frozen=True):
    """A bundle in the inbox, and the parts it names."""

    key: str
    parts: list[str]


def is_bundle(key: str) -> bool:
    return key.endswith(_END)


def bundle(call: int, blocks: Sequence[tuple[str, Buffer]]) -> tuple[list[tuple[str, Buffer]], tuple[str, Buffer]]:
    """Blocks by their usual keys become parts and the bundle that names them; all keys are relative to the log."""
    folder = f"{FOLDER}{call:032x}/"
    parts = [(folder + key, data) for key, data in blocks]
    named = [parse_block(key) for key, _ in blocks]
    urgent = max(name.priority for name in named)
    ends = [name.expires for name in named if name.expires]
    lapse = f"x{min(ends, key=instant_of)}" if ends else ""
    key = f"inbox/{255 - urgent:03d}/{call:032x}{lapse}{_END}"
    return parts, (key, msgspec.msgpack.encode([key for key, _ in parts]))


def decoded(data: bytes) -> list[str]:
    """The parts that a bundle names."""
    return _DECODER.decode(data)


def parts(view: Reading, root: str, key: str) -> list[str]:
    """The parts a bundle names; none when it is gone, since then they have been absorbed. Damaged."""
    found = view.get(root + key)
    return damage.read(root + key, decoded, found.data) if found is not None else []


def expanded(view: Reading, root: str, keys: Iterable[str]) -> Iterator[tuple[str, Bundle | None]]:
    """Keys of blocks, with the parts of bundles in their place, and the bundle that names them."""
    for key in keys:
        if is_bundle(key):
            bundle = Bundle(key, parts(view, root, key))
            yield from ((part, bundle) for part in bundle.parts)
        else:
            yield key, None
