"""Several queues as one worker sees them: by name or pattern, in the order given or by weights."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import config
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..codecs import Codec
    from ..events import Emitter
    from ..lifetime import Lifetime
    from ..queue import Queue

Wanted: TypeAlias = Sequence[str] | Mapping[str, float]
Opener: TypeAlias = Callable[[Sequence[str], bool], Awaitable[list["Queue[Any]"]]]


class Entry:
    """One name or pattern: those of its queues that may have something take turns."""

    def __init__(self, text: str, weight: float) -> None:
        self.text = text
        self.weight = weight
        self.ready: dict[str, None] = {}  # in their order
        self.served = 0.0  # messages per weight, as far as others have come while it had nothing


class Turns:
    """Whose turn it is: the first entry that has something, or with weights the one that has got least for its own."""

    def __init__(self, wanted: Wanted) -> None:
        self._is_weighted = isinstance(wanted, Mapping)
        weights = wanted if isinstance(wanted, Mapping) else dict.fromkeys(wanted, 1.0)
        self.entries = [Entry(text, weight) for text, weight in weights.items()]
        self._of: dict[str, Entry | None] = {}
        self._now = 0.0  # what the entry had got that was last served

    def entry_of(self, queue: str) -> Entry | None:
        """The first that it fits; None: none."""
        if queue not in self._of:
            fitting = (each for each in self.entries if each.text == queue or fnmatchcase(queue, each.text))
            self._of[queue] = next(fitting, None)
        return self._of[queue]

    def add(self, queues: Iterable[str]) -> None:
        """These may have something."""
        for queue in queues:
            entry = self.entry_of(queue)
            if entry is not None and queue not in entry.ready:
                if not entry.ready:
                    entry.served = max(entry.served, self._now)  # who was away does not get it all afterwards
                entry.ready[queue] = None

    def pick(self, most: int) -> list[str]:
        """Up to so many queues of the entry whose turn it is."""
        having = [entry for entry in self.entries if entry.ready]
        if not having:
            return []
        entry = min(having, key=lambda each: each.served) if self._is_weighted else having[0]
        picked = list(islice(entry.ready, most))
        for queue in picked:  # to the end of the line
            del entry.ready[queue]
            entry.ready[queue] = None
        return picked

    def took(self, queue: str, count: int, *, is_empty: bool) -> None:
        """So many messages of it were claimed, and there are no more."""
        entry = self.entry_of(queue)
        if entry is None:
            return
        self._now = entry.served
        entry.served += count / entry.weight
        if is_empty:
            entry.ready.pop(queue, None)

    @property
    def is_idle(self) -> bool:
        return not any(entry.ready for entry in self.entries)


class Choice:
    """The queues of one worker, opened; those that a pattern fits are looked for now and then."""

    def __init__(self, wanted: Wanted, opener: Opener, *, codec: Codec[Any], life: Lifetime, events: Emitter) -> None:
        self.wanted = checked(wanted)
        self.name = ", ".join(self.wanted)
        self.codec = codec
        self.life = life
        self.events = events
        self._opener = opener
        self.queues: dict[str, Queue[Any]] = {}

    @property
    def has_patterns(self) -> bool:
        return any(is_pattern(text) for text in self.wanted)

    async def look(self) -> None:
        """Open those that are new; the ones given by name are made when they are absent."""
        names = [text for text in self.wanted if not is_pattern(text)]
        fits = Turns(self.wanted).entry_of
        for queue in await self._opener(names, self.has_patterns):
            if queue.name not in self.queues and fits(queue.name) is not None:
                self.queues[queue.name] = queue

    def forget(self, name: str) -> None:
        """It was deleted."""
        self.queues.pop(name, None)


def checked(wanted: object) -> Wanted:
    """Names and patterns, or their weights; ConfigError."""
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Sequence | Mapping) or not wanted:
        raise ConfigError(f"queues: a list of names and patterns, or a mapping to weights, not {wanted!r}")
    for text in wanted:
        if not isinstance(text, str):
            raise ConfigError(f"queues: a name or a pattern is text, not {text!r}")
        config.queue_name(text.replace("*", "x").replace("?", "x"))
    if isinstance(wanted, Mapping):
        for text, weight in wanted.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
                raise ConfigError(f"queues: the weight of {text} is a number above 0, not {weight!r}")
        return dict(wanted)
    return list(dict.fromkeys(wanted))


def is_pattern(text: str) -> bool:
    return "*" in text or "?" in text
