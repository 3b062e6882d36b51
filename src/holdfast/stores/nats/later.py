"""Delays on servers without schedules (before 2.12): a consumer hands out what is due, claimers put it in its lane."""

from __future__ import annotations

from . import tasks
from .faults import CONSUMER_NOT_FOUND, WRONG_SEQUENCE, Refused
from .lanes import Handed, Lane, nak
from .log import Log
from .wire import Post

_NAME = "later"
_WAIT = 30.0  # seconds until what a client took and did not move is handed out again


class Later:
    """The delayed messages of one queue."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lane: Lane | None = None

    @property
    def is_needed(self) -> bool:
        return not self._log.link.features.schedules and not self._log.dead

    async def bring(self) -> None:
        """Move what is due to its lane."""
        lane = await self._open()
        while found := await lane.fetch(100):
            for handed in found:
                await self._bring(handed)
        if lane.broken:
            lane.broken = False
            await self._make()

    async def stand(self, seconds: float) -> None:
        """Be woken when something is due."""
        await (await self._open()).stand(seconds)

    async def _open(self) -> Lane:
        if self._lane is None:
            await self._make()
            lane = Lane(self._log.link, self._log.names.task_stream, _NAME, _WAIT)
            lane.wake = self._log.lanes.wake_all
            self._log.link.drops.append(lane.dropped)
            await lane.open()
            self._lane = lane
        return self._lane

    async def remake(self) -> None:
        """Make the consumer anew, which hands out everything once more."""
        lane = await self._open()
        try:
            await self._log.link.api(f"CONSUMER.DELETE.{self._log.names.task_stream}.{_NAME}")
        except Refused as error:
            if error.code != CONSUMER_NOT_FOUND:
                raise
        lane.dropped()
        await self._make()

    async def _make(self) -> None:
        stream, subject = self._log.names.task_stream, f"{self._log.names.later}*.*"
        config = {
            "name": _NAME,
            "durable_name": _NAME,
            "filter_subject": subject,
            "ack_policy": "explicit",
            "ack_wait": int(_WAIT * 1e9),
            "max_ack_pending": -1,
            "max_deliver": -1,
        }
        await self._log.link.api(
            f"CONSUMER.CREATE.{stream}.{_NAME}.{subject}", {"stream_name": stream, "config": config}
        )

    async def _bring(self, handed: Handed) -> None:
        link, task = self._log.link, tasks.read_task(handed.data)
        wait = task.due - link.now()
        if wait > 0:
            await link.send(handed.ack, nak(wait))
            return
        subject = f"{self._log.names.task}{task.metadata.priority}.{task.id}"
        try:
            await link.store([Post(subject, handed.data, f"Nats-Msg-Id: {task.id}\r\n", 0)])
        except Refused as error:
            if error.code != WRONG_SEQUENCE:
                raise
        await link.request(handed.ack, b"+ACK")
