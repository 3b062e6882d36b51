"""Frames for many publishes at once: building them in one go costs a fraction of a call of the driver for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from . import deadline
from .faults import Lost

EXPECT = "Nats-Expected-Last-Subject-Sequence"
_OWN_HEADERS = 512  # bytes of what is expected and of the batch, at most
_BATCH_MESSAGES = 1000  # the server's limit
_BATCH_BYTES = 16 << 20
_PENDING_BYTES = 64 << 20  # that may wait to be sent
_ROOM_AGAIN = 0.01  # seconds between two looks


class Post(msgspec.Struct, frozen=True, gc=False):
    """One message to be stored."""

    subject: str
    data: bytes
    headers: str = ""  # ready lines, each ended by CR LF
    expect: int | None = None  # the last sequence of its subject


def lines(post: Post) -> str:
    return post.headers if post.expect is None else f"{post.headers}{EXPECT}: {post.expect}\r\n"


def size(post: Post) -> int:
    """Bytes of a message as the server counts them, at most."""
    return len(post.data) + len(post.headers) + _OWN_HEADERS


def frame(subject: str, data: bytes, reply: str = "", headers: str = "") -> bytes:
    """One PUB or HPUB of the protocol."""
    to = f"{subject} {reply}" if reply else subject
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (to.encode(), len(data), data)
    head = b"NATS/1.0\r\n%b\r\n" % headers.encode()
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (to.encode(), len(head), len(head) + len(data), head, data)


def frames(posts: Sequence[Post], reply: str) -> bytes:
    """One publish for each, answered under its place."""
    return b"".join([frame(p.subject, p.data, f"{reply}.{place}", lines(p)) for place, p in enumerate(posts)])


def batch(posts: Sequence[Post], name: str, reply: str) -> bytes:
    """An atomic batch: the server stores all of it or nothing, and answers once."""
    last = len(posts)
    frames = [
        frame(post.subject, post.data, "", f"{lines(post)}Nats-Batch-Id: {name}\r\nNats-Batch-Sequence: {number}\r\n")
        for number, post in enumerate(posts[:-1], 1)
    ]
    end = f"{lines(posts[-1])}Nats-Batch-Id: {name}\r\nNats-Batch-Sequence: {last}\r\nNats-Batch-Commit: 1\r\n"
    frames.append(frame(posts[-1].subject, posts[-1].data, reply, end))
    return b"".join(frames)


def parts(posts: Sequence[Post]) -> list[Sequence[Post]]:
    """Pieces that the server takes as one batch."""
    found: list[Sequence[Post]] = []
    start = size = 0
    for index, post in enumerate(posts):
        size += len(post.data)
        if index > start and (index - start >= _BATCH_MESSAGES or size > _BATCH_BYTES):
            found.append(posts[start:index])
            start, size = index, len(post.data)
    return [*found, posts[start:]]


async def send(client: Any, data: bytes, within: float) -> None:
    """Hand frames to the driver's own buffer, in their order with everything else it sends; Lost."""
    await wait_for_room(client, within)
    client.stats["out_bytes"] += len(data)
    await client._send_command(data)
    await client._flush_pending()


async def wait_for_room(client: Any, within: float) -> None:
    """The driver waits for a server that reads nothing without a deadline: before it would, we do with one; Lost."""
    until = 0.0
    if client._flush_queue is None:
        raise Lost("no connection")
    while client._flush_queue.full() or client._pending_data_size > _PENDING_BYTES:
        until = until or deadline.until(within)
        if time.monotonic() >= until:
            raise Lost("the server reads nothing")
        await asyncio.sleep(_ROOM_AGAIN)
