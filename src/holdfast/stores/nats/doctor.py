"""What `holdfast doctor` says about the server, which streams opening refuses, and the warning that comes once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...errors import UnsafeStore
from ...escaping import logger_named
from .. import daily_warnings
from ..base import Check
from . import names
from .connection import Connection
from .faults import Code, Denied, Ignored, Lost, Nobody, Refused
from .queues import must_be_converted
from .reading import Reader

_LOG = logger_named("holdfast.nats")
_SYNC = (
    "JetStream writes to the disk every `sync_interval` (2 minutes unless the server says otherwise): what was "
    "acknowledged survives a kill of any process, and a power cut only with `sync_interval: always` or replicas"
)


def warn_once(connection: Connection) -> None:
    """Once per store and day: every command is a process of its own."""
    url = connection.client.connected_url
    store = f"{url.hostname}:{url.port}/{connection.options.prefix}" if url is not None else connection.options.prefix
    if connection.options.replicas < 3 and daily_warnings.is_due("sync_interval", store):
        _LOG.warning("nats: %s", _SYNC)


async def checks(connection: Connection, prefix: str) -> list[Check]:
    """One line each."""
    found = [_version(connection)]
    try:
        account = await connection.api("INFO")
    except Refused as error:
        return [*found, Check("jetstream", "fail", str(error))]
    found.append(Check("jetstream", "ok", _usage(account)))
    found.append(await _streams(connection, prefix))
    found.append(await _replicas(connection, prefix))
    found.append(await _durability(connection))
    return found


async def _streams(connection: Connection, prefix: str) -> Check:
    """Whether a full server refuses messages, or drops them."""
    configs = await _kept(connection, prefix)
    dangers = [f"{config['name']} {why}" for config in configs if (why := _danger(config)) is not None]
    if dangers:
        return Check("streams", "fail", "; ".join(dangers))
    if old := [config["name"] for config in configs if _is_outdated(config)]:
        what = "of an earlier version: a limit set on them would drop messages; run `holdfast install`"
        return Check("streams", "warn", f"{', '.join(old)}: {what}")
    return Check("streams", "ok", f"{len(configs)}; full ones refuse messages and drop none")


async def _durability(connection: Connection) -> Check:
    """What the server says of `sync_interval`; only a user of the system account may ask."""
    try:
        reply = await connection.request("$SYS.REQ.SERVER.PING.JSZ", within=1.0)
        config: dict[str, Any] = msgspec.json.decode(reply.data)["data"]["config"]
    except (Lost, Nobody, Denied, KeyError, msgspec.DecodeError):
        return Check("survives", "warn" if connection.options.replicas < 3 else "ok", _SYNC)
    if config.get("sync_always"):
        return Check("survives", "ok", "sync_interval: always; what was acknowledged survives a power cut")
    seconds = int(config.get("sync_interval", 0)) / 1e9
    state = "warn" if connection.options.replicas < 3 else "ok"
    return Check("survives", state, f"sync_interval: {seconds:g} s; a power cut can cost what came in since")


def _version(connection: Connection) -> Check:
    what = f"NATS {connection.version}, messages up to {connection.max_payload} bytes"
    return Check("server", "ok" if connection.is_at_least(2, 12) else "fail", what)


def _usage(account: dict[str, Any]) -> str:
    streams, consumers, storage = (account.get(name, 0) for name in ("streams", "consumers", "storage"))
    return f"{streams} streams, {consumers} consumers, {storage} bytes"


async def _replicas(connection: Connection, prefix: str) -> Check:
    info = await connection.api(f"STREAM.INFO.{names.queues_stream(prefix)}")
    number = int(info["config"].get("num_replicas", 1))
    behind = [one for one in (info.get("cluster") or {}).get("replicas") or [] if not one.get("current")]
    if behind:
        return Check("replicas", "warn", f"{number}, {len(behind)} of them behind")
    what = "a message survives the loss of one server" if number >= 3 else "one copy: it is lost with its disk"
    return Check("replicas", "ok" if number >= 3 else "warn", f"{number}: {what}")


# ---------------------------------------------------------------------- limits of streams


def _danger(config: Mapping[str, Any]) -> str | None:
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


def _is_outdated(config: Mapping[str, Any]) -> bool:
    """Whether an earlier version made it, and a limit would make it drop messages: `holdfast install` mends that."""
    return config.get("discard") != "new" or must_be_converted(config)


async def _kept(connection: Connection, prefix: str) -> list[dict[str, Any]]:
    """The configurations of all streams that messages must not vanish from."""
    listed = await Reader(connection).pages("STREAM.LIST", "streams", {"subject": f"{prefix}.>"})
    configs = [found["config"] for found in listed]
    forgetful = names.forgetful_streams(prefix)
    ours = [
        one
        for one in configs
        if one["name"] not in forgetful and names.is_ours(prefix, one["name"], one.get("subjects") or [])
    ]
    with Ignored(Code.STREAM_NOT_FOUND):
        ours.append((await connection.api(f"STREAM.INFO.OBJ_{prefix}-blobs"))["config"])
    return ours


async def refuse_dangerous(connection: Connection, prefix: str) -> set[str]:
    """UnsafeStore where a stream would drop messages; the queues that have to be converted first."""
    found = await _kept(connection, prefix)
    for config in found:
        if (why := _danger(config)) is not None:
            raise UnsafeStore(f"nats: stream {config['name']!r} {why}")
    queues = [names.queue_of_stream(config["name"]) for config in found if must_be_converted(config)]
    return {queue for queue in queues if queue is not None}
