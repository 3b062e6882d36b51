"""What the samples of a long run say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, median

import msgspec

WARM_UP = 1 / 3  # of the time: ten minutes of thirty
MEMORY_MB_A_MINUTE = 1.0
CLAIMS_SLOWER = 2.0
ENOUGH_SECONDS = 300.0  # below, memory that comes and goes tells nothing about growth
CONNECTION = "connection to "
_PART = 10  # the first and the last tenth are compared


class Sample(msgspec.Struct, frozen=True, array_like=True):
    at: float  # seconds since the beginning
    memory: float  # MB
    handles: list[str]  # files by their path, connections by where they lead
    claim_p99: float  # seconds, since the sample before
    sent: int
    done: int
    machine: float = 0.0  # seconds: what a process beside it takes for the same little work (p99), as busy as all are
    left: list[str] | None = None  # of the last one: handles that closing the broker has not given back

    @property
    def connections(self) -> int:
        return sum(each.startswith(CONNECTION) for each in self.handles)


class Finding(msgspec.Struct, frozen=True):
    memory: float  # MB a minute
    handles: int  # more in the last third than in the first
    first_p99: float  # seconds
    last_p99: float
    megabytes: float  # in the end
    judged: float  # seconds
    busier: float  # times as long for the same work in the end: others keep the machine busy
    opened: list[str]  # handles of the last sample that the first has not


def finding(samples: Sequence[Sample]) -> Finding:
    """After the warm-up."""
    end = samples[-1].at
    judged = [each for each in samples if each.at >= end * WARM_UP]
    part, third = max(1, len(judged) // _PART), max(1, len(judged) // 3)
    first, last = judged[:part], judged[-part:]
    return Finding(
        slope(judged) * 60,
        _more_handles(judged[:third], judged[-third:]),
        _claims(first),
        _claims(last),
        samples[-1].memory,
        end - judged[0].at,
        _times(median(each.machine for each in first), median(each.machine for each in last)),
        sorted((Counter(judged[-1].handles) - Counter(judged[0].handles)).elements()),
    )


def _claims(some: Sequence[Sample]) -> float:
    """Seconds, over the samples in which there was a claim."""
    return median([each.claim_p99 for each in some if each.claim_p99] or [0.0])


def _more_handles(first: Sequence[Sample], last: Sequence[Sample]) -> int:
    """At the least in the end beside the least before; of a pool's connections, which come and go, beside the most.

    One connection that is never used again can hide below that: it is found when the broker is closed.
    """
    was, now = ([each.connections for each in some] for some in (first, last))
    files_was, files_now = ([len(each.handles) - each.connections for each in some] for some in (first, last))
    return min(files_now) - min(files_was) + max(0, min(now) - max(was))


def _times(first: float, last: float) -> float:
    """Never below 1: a machine that got idle does not make claims worse."""
    return max(1.0, last / first) if first else 1.0


def slope(samples: Sequence[Sample]) -> float:
    """MB a second, by least squares through the least of each minute: what comes and goes is no growth."""
    minutes = [min(same, key=lambda each: each.memory) for _, same in groupby(samples, lambda each: each.at // 60)]
    middle, mean = (fmean(values) for values in zip(*((each.at, each.memory) for each in minutes), strict=True))
    spread = sum((each.at - middle) ** 2 for each in minutes)
    return sum((each.at - middle) * (each.memory - mean) for each in minutes) / spread if spread else 0.0


def failures(found: Finding, samples: Sequence[Sample]) -> list[str]:
    """In words; [] when it is steady."""
    last, said = samples[-1], []
    if found.judged >= ENOUGH_SECONDS and found.memory >= MEMORY_MB_A_MINUTE:
        said.append(f"memory grew by {found.memory:.2f} MB a minute")
    if found.handles > 0:
        said.append(f"{found.handles} handles more in the end: {', '.join(found.opened)}")
    if found.judged >= ENOUGH_SECONDS and found.last_p99 > CLAIMS_SLOWER * found.busier * found.first_p99:
        said.append(f"claims took {found.first_p99 * 1e3:.1f} ms (p99) at first, {found.last_p99 * 1e3:.1f} in the end")
    if last.left is None:
        said.append("the broker was not closed")
    elif last.left:
        said.append(f"{len(last.left)} handles left after closing: {', '.join(last.left)}")
    if last.done < last.sent:
        said.append(f"{last.sent - last.done} of {last.sent} messages did not end")
    return said
