"""What callers asked and what they were told, in virtual time: all that the judge knows besides the space itself."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from holdfast.errors import HoldfastError

from .baton import World

T = TypeVar("T")


class Call:
    """One call; without an answer its process was killed."""

    __slots__ = ("answer", "args", "began", "by", "ended", "error", "kind", "number", "process", "wall")

    def __init__(self, number: int, process: str, by: str, kind: str, began: float, args: dict[str, Any]) -> None:
        self.number = number
        self.process = process
        self.by = by
        self.kind = kind
        self.began = began
        self.args = args
        self.wall = 0.0  # seconds by which the wall clock of its process is wrong
        self.ended: float | None = None
        self.answer: Any = None
        self.error: HoldfastError | Exception | None = None

    @property
    def is_ok(self) -> bool:
        return self.ended is not None and self.error is None

    @property
    def is_unclear(self) -> bool:
        """It may have taken effect, or may yet."""
        return not self.is_ok

    def __str__(self) -> str:
        said = "killed" if self.ended is None else repr(self.error) if self.error else self.answer
        end = "…" if self.ended is None else f"{self.ended:.3f}"
        return f"{self.began:.3f}-{end} {self.by} {self.kind} {self.args} -> {said}"


class History:
    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[Call] = []

    async def call(self, process: str, by: str, kind: str, work: Awaitable[T], **args: Any) -> T:
        """The call's answer; its error is written down and raised."""
        call = Call(len(self.calls), process, by, kind, self.world.now, args)
        call.wall = self.world.process.wall
        self.calls.append(call)
        try:
            call.answer = await work
        except Exception as error:
            call.error, call.ended = error, self.world.now
            raise
        call.ended = self.world.now
        return call.answer  # type: ignore[no-any-return]
