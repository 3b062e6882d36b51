"""Single calls on a served bucket: those that come spread over time share objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import holdfast
from holdfast.server.gathering import Gathering
from tests.server.fixtures import Http
from tests.servers.bucket import BucketServer
from tests.servers.proxy import Proxy
from tests.servers.serving import ServerThread

CALLERS, ROUNDS = 40, 10
Send = Callable[[int], Awaitable[object]]


class Medium:
    """Takes as long for many as for one; what comes in one turn of the event loop is one write."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.writes: list[int] = []
        self._open: asyncio.Task[None] | None = None

    async def append(self) -> None:
        if self._open is None:
            self.writes.append(0)
            self._open = asyncio.create_task(self._write())
        self.writes[-1] += 1
        await self._open

    async def _write(self) -> None:
        await asyncio.sleep(0)
        self._open = None
        await asyncio.sleep(self.seconds)


async def test_callers_that_come_back_one_by_one_are_written_together() -> None:
    medium, gathering = Medium(0.1), Gathering()

    async def caller(number: int) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(number * 0.0005)
            await gathering.call(medium.append)

    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    assert sum(medium.writes) == CALLERS * ROUNDS
    assert len(medium.writes) <= CALLERS + 3 * ROUNDS, "alone they are as many as calls, and in the first round too"


async def test_nobody_waits_for_others_who_is_alone() -> None:
    gathering, begun = Gathering(), list[int]()

    async def append() -> None:
        begun.append(1)

    for number in range(5):
        call = asyncio.ensure_future(gathering.call(append))
        while not call.done():
            assert gathering._timer is None
            await asyncio.sleep(0)
        assert len(begun) == number + 1


async def test_who_does_not_come_back_is_waited_for_a_moment() -> None:
    medium, gathering = Medium(0.02), Gathering()
    await gathering.call(medium.append)  # how long a call takes is known then
    await asyncio.gather(*(gathering.call(medium.append) for _ in range(5)))
    assert medium.writes == [1, 1, 4]
    assert gathering._expected > 1
    await asyncio.wait_for(gathering.call(medium.append), 5)
    await asyncio.wait_for(gathering.call(medium.append), 5)
    assert medium.writes[-2:] == [1, 1]


async def test_who_is_held_up_holds_up_nobody_else() -> None:
    gathering, medium, never = Gathering(), Medium(0.02), asyncio.Event()
    first = asyncio.ensure_future(gathering.call(never.wait))
    await asyncio.wait_for(gathering.call(medium.append), 5)  # nobody knows yet how long a call takes
    stuck = asyncio.ensure_future(gathering.call(never.wait))
    others = [asyncio.ensure_future(gathering.call(medium.append)) for _ in range(5)]
    await asyncio.wait_for(asyncio.gather(*others), 5)
    assert not first.done()
    assert not stuck.done()
    assert medium.writes == [1, 5]
    never.set()
    await asyncio.gather(first, stuck)


async def test_it_is_learned_when_calls_take_longer() -> None:
    gathering, medium = Gathering(), Medium(0.001)
    await gathering.call(medium.append)
    medium.seconds = 0.1

    async def caller() -> None:
        while gathering._took < 0.1:
            await gathering.call(medium.append)

    await asyncio.wait_for(asyncio.gather(*(caller() for _ in range(5))), 20)


async def test_those_who_fail_or_give_up_hold_nobody_up() -> None:
    gathering, gate = Gathering(), asyncio.Event()

    async def fail() -> None:
        await gate.wait()
        raise ValueError("no")

    async def work() -> str:
        return "done"

    await gathering.call(Medium(1.0).append)  # for four times as long others wait
    failing = asyncio.ensure_future(gathering.call(fail))
    await asyncio.sleep(0)
    impatient, patient = (asyncio.ensure_future(gathering.call(work)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    gate.set()
    with pytest.raises(ValueError, match="no"):
        await failing
    assert await asyncio.wait_for(patient, 5) == "done"
    assert impatient.cancelled()
    begun = asyncio.ensure_future(gathering.call(gate.wait))
    begun.cancel()  # its turn has come, but it does not know yet
    assert await asyncio.wait_for(gathering.call(work), 5) == "done"


@pytest.fixture
def far() -> Iterator[tuple[ServerThread, Proxy]]:
    """A bucket that takes its time, so that all calls come while the first is under way."""
    with (
        BucketServer() as bucket,
        Proxy(bucket.port) as proxy,
        ServerThread(bucket.url("jobs", endpoint=proxy.endpoint)) as server,
    ):
        Http(server.address).queue("jobs")
        yield server, proxy


async def _send_spread(proxy: Proxy, send: Send) -> int:
    """How many objects were made for calls that came one after the other."""
    proxy.latency = 1.0
    await send(0)
    before = proxy.counts.copy()
    calls = []
    for number in range(1, 6):  # threads that ask are few
        calls.append(asyncio.ensure_future(send(number)))
        await asyncio.sleep(0.02)
    await asyncio.gather(*calls)
    proxy.latency = 0.0
    return proxy.counts.since(before).requests["create"]


async def test_calls_of_clients_share_objects(far: tuple[ServerThread, Proxy]) -> None:
    server, proxy = far
    async with holdfast.connect(server.address) as broker:
        queue = await broker.queue("jobs")
        assert await _send_spread(proxy, queue.enqueue) <= 3, "each of the first three would have its own"
        assert (await queue.stats()).pending == 6


async def test_calls_of_the_api_share_objects(far: tuple[ServerThread, Proxy]) -> None:
    server, proxy = far
    http = Http(server.address)

    async def send(number: int) -> None:
        answer = await asyncio.to_thread(http.post, "/api/v1/queues/jobs/messages", {"value": number})
        assert answer.status == 201

    assert await _send_spread(proxy, send) <= 3
    assert http.get("/api/v1/queues/jobs").body["stats"]["pending"] == 6
