"""A head to try rules on: keys of blocks, and a log that keeps what `apply` answers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.stores.log.head import bits, machine
from holdfast.stores.log.head.state import Absorb, Block, Claim, Drop, Freeze, Head, Intent, Rules, Settle
from holdfast.stores.log.names import BlockName

T0 = 1_700_000_000.0
SOURCE = Path(machine.__file__).read_text()


def compiled(source: str) -> ModuleType:
    """Source of a head module, as a module of its own beside the real one."""
    module = ModuleType("holdfast.stores.log.head.machine_copy")
    module.__package__ = machine.__package__
    exec(compile(source, "machine_copy.py", "exec"), module.__dict__)
    return module


def key(number: int, count: int, *, due: float | None = None, **said: Any) -> str:
    """The key of block `number`; blocks of a priority are in order of their numbers."""
    fields: dict[str, Any] = {"priority": 0, "max_attempts": 0, "attempts": 0, "crashed": False} | said
    name = BlockName(f"{number << 20:032x}", count, **fields)
    return name.inbox_key() if due is None else name.later_key(due)


def span(*places: int) -> int:
    """A set of places."""
    return sum(1 << place for place in set(places))


class Bench:
    """One head under one module's rules; the module may be a changed copy of the real one."""

    def __init__(self, module: ModuleType, **rules: Any) -> None:
        self.module = module
        self.rules = Rules(**rules)
        self.head = Head()
        self.now = T0
        self.finished: list[str] = []

    def do(self, *intents: Intent) -> list[Any]:
        """Apply them together; the results."""
        applied = self.module.apply(self.head, intents, self.now, self.rules)
        self.head = applied.head
        self.finished += applied.finished
        return applied.results

    def one(self, intent: Intent) -> Any:
        return self.do(intent)[0]

    def absorb(self, *keys: str) -> int:
        return self.one(Absorb(list(keys), "own"))

    def claim(self, token: str, limit: int, lease: float = 10.0) -> list[tuple[int, int, int]]:
        """(block, place, attempt) of what a claim gave, in the order given."""
        taken = self.one(Claim(token, limit, lease))
        return [(each.block, place, each.attempt) for each in taken for place in bits.places(each.mask)]

    def settle(self, token: str, block: int, mask: int, action: str, **said: Any) -> int:
        return self.one(Settle(token, block, mask, action, **said))

    def flush(self, flush: str = "f") -> bool:
        """Freeze and drop."""
        return self.one(Freeze(flush)) and self.one(Drop(flush))

    def block(self, no: int = 1) -> Block:
        return self.head.blocks[no]

    def leased(self, token: str, block: int = 1) -> int:
        """The places a token holds."""
        masks = [each.mask for each in self.head.leases if each.token == token and each.block == block]
        assert sum(masks) == bits_union(masks), "a place is leased twice"
        return sum(masks)

    def waits(self, block: int = 1) -> int:
        return bits_union(each.mask for each in self.head.waiting if each.block == block)


def bits_union(masks: Any) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def claimed(module: ModuleType, count: int, *, attempts: int = 1, crash: bool = False, **rules: Any) -> Bench:
    """A block of `count` messages, all held under the token `t` in this attempt."""
    bench = Bench(module, **rules)
    bench.absorb(key(1, count))
    for attempt in range(1, attempts):
        bench.claim(f"t{attempt}", count)
        if crash:
            bench.now += 10.0
        else:
            bench.settle(f"t{attempt}", 1, span(*range(count)), "retry")
    bench.claim("t", count)
    assert bench.leased("t") == span(*range(count))
    return bench
