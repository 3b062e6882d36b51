"""Limits of streams: which of them would let the server drop what was acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import UnsafeStore
from . import names
from .connection import Link
from .faults import STREAM_NOT_FOUND, Refused


async def streams(link: Link, prefix: str) -> list[dict[str, Any]]:
    """What the server says of every stream with subjects under this prefix."""
    found: list[dict[str, Any]] = []
    while True:
        page = await link.api("STREAM.LIST", {"subject": f"{prefix}.>", "offset": len(found)})
        found += page.get("streams") or []
        if not page.get("streams") or len(found) >= int(page.get("total", 0)):
            return found


def danger(config: Mapping[str, Any]) -> str | None:
    """Why the server may drop what lies in a stream, and the command that mends it."""
    name = config["name"]
    if int(config.get("max_age", 0)) > 0:
        return f"has max_age, so the server drops what is older; mend it: nats stream edit '{name}' --max-age=0 -f"
    if config.get("discard") == "new":
        return None
    if int(config.get("max_msgs", -1)) <= 0 and int(config.get("max_bytes", -1)) <= 0:
        return None
    why = "has a limit with discard=old, so a full stream drops its oldest messages; mend it: nats stream edit"
    if config.get("allow_msg_schedules"):
        return f"{why} '{name}' --max-msgs=-1 --max-bytes=-1 -f, then `holdfast install`, after which limits are safe"
    return f"{why} '{name}' --discard=new -f"


def is_outdated(config: Mapping[str, Any]) -> bool:
    """Whether an earlier version made it, and a limit would make it drop messages: `holdfast install` mends that."""
    return config.get("discard") != "new" or must_be_converted(config)


def must_be_converted(config: Mapping[str, Any]) -> bool:
    """Whether an upgrade of its queue has to be done or finished before anybody may work on it.

    A stream of tasks with schedules, or with a place of its own for delayed messages, is older than the format before.
    """
    subjects = config.get("subjects") or []
    return (
        bool(config.get("allow_msg_schedules"))
        or config["name"].endswith(f"={names.MOVING}")
        or any(subject.split(".")[1:3] == ["_", "later"] for subject in subjects)
    )


async def kept(link: Link, prefix: str) -> list[dict[str, Any]]:
    """The configurations of all streams that messages must not vanish from."""
    configs = [found["config"] for found in await streams(link, prefix)]
    gone = names.gone_stream(prefix)
    ours = [
        one for one in configs if one["name"] != gone and names.is_ours(prefix, one["name"], one.get("subjects") or [])
    ]
    try:
        ours.append((await link.api(f"STREAM.INFO.OBJ_{prefix}-blobs"))["config"])
    except Refused as error:
        if error.code != STREAM_NOT_FOUND:
            raise
    return ours


async def refuse_dangerous(link: Link, prefix: str) -> set[str]:
    """UnsafeStore where a stream would drop messages; the queues that have to be converted first."""
    found = await kept(link, prefix)
    for config in found:
        if (why := danger(config)) is not None:
            raise UnsafeStore(f"nats: stream {config['name']!r} {why}")
    queues = [names.queue_of_stream(config["name"]) for config in found if must_be_converted(config)]
    return {queue for queue in queues if queue is not None}
