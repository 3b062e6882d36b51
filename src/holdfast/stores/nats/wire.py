"""What is sent to a stream, and its answers. No I/O.

Frames for many publishes are built in one go: that costs a fraction of a call of the driver for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .fast_reader import Incoming
from .faults import NOT_THERE, Nobody, Refused, refusal

API = "$JS.API."
EXPECT = "Nats-Expected-Last-Subject-Sequence"
_OWN_HEADERS_BYTES = 512  # of what is expected and of the batch, at most
BATCH_MESSAGES = 1000  # the server takes no more in one batch
BATCH_BYTES = 16 << 20  # of one batch or page: the server and we hold it in memory whole


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
    return len(post.data) + len(post.headers) + _OWN_HEADERS_BYTES


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
        if index > start and (index - start >= BATCH_MESSAGES or size > BATCH_BYTES):
            found.append(posts[start:index])
            start, size = index, len(post.data)
    return [*found, posts[start:]]


def removal(stream: str, place: int | str) -> Post:
    """The request that removes the message of a sequence, or all of a subject."""
    if isinstance(place, int):
        return Post(f"{API}STREAM.MSG.DELETE.{stream}", b'{"seq":%d,"no_erase":true}' % place)
    return Post(f"{API}STREAM.PURGE.{stream}", b'{"filter":"%b"}' % place.encode())


class _Stored(msgspec.Struct):
    """The answer to a publish."""

    seq: int = 0
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Stored).decode


def read_answer(reply: Incoming) -> int | Exception:
    """The sequence in the answer to a publish, or Refused or Nobody."""
    if (headers := reply.headers) and headers.get("Status") == "503":
        return Nobody()
    said = _decode(reply.data)
    return said.seq if said.error is None else refusal(said.error)


def sequence(reply: Incoming) -> int:
    """The same; Refused."""
    found = read_answer(reply)
    if isinstance(found, Exception):
        raise found
    return found


def read_there(reply: Incoming) -> bool | Exception:
    """Whether a message that was to be removed or read was there; Refused or Nobody."""
    found = read_answer(reply)
    if isinstance(found, Refused) and found.code in NOT_THERE:
        return False
    return found if isinstance(found, Exception) else True
