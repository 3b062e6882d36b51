"""What `holdfast doctor` says about the server, and the one warning that every user should see once."""

from __future__ import annotations

from typing import Any

import msgspec

from ...escaping import logger_named
from .. import reminders
from ..base import Check
from . import limits
from .connection import Link
from .faults import Denied, Lost, Nobody, Refused
from .names import queues_stream

_LOG = logger_named("holdfast.nats")
_SYNC = (
    "JetStream writes to the disk every `sync_interval` (2 minutes unless the server says otherwise): what was "
    "acknowledged survives a kill of any process, and a power cut only with `sync_interval: always` or replicas"
)


def warn_once(link: Link) -> None:
    """Once per store and day: every command is a process of its own."""
    url = link.client.connected_url
    store = f"{url.hostname}:{url.port}/{link.options.prefix}" if url is not None else link.options.prefix
    if link.options.replicas < 3 and reminders.is_due("sync_interval", store):
        _LOG.warning("nats: %s", _SYNC)


async def checks(link: Link, prefix: str) -> list[Check]:
    """One line each."""
    found = [_version(link)]
    try:
        account = await link.api("INFO")
    except Refused as error:
        return [*found, Check("jetstream", "fail", str(error))]
    found.append(Check("jetstream", "ok", _usage(account)))
    found.append(await _streams(link, prefix))
    found.append(await _replicas(link, prefix))
    found.append(await _durability(link))
    return found


async def _streams(link: Link, prefix: str) -> Check:
    """Whether a full server refuses messages, or drops them."""
    configs = await limits.kept(link, prefix)
    dangers = [f"{config['name']} {why}" for config in configs if (why := limits.danger(config)) is not None]
    if dangers:
        return Check("streams", "fail", "; ".join(dangers))
    if old := [config["name"] for config in configs if limits.is_outdated(config)]:
        what = "of an earlier version: a limit set on them would drop messages; run `holdfast install`"
        return Check("streams", "warn", f"{', '.join(old)}: {what}")
    return Check("streams", "ok", f"{len(configs)}; full ones refuse messages and drop none")


async def _durability(link: Link) -> Check:
    """What the server says of `sync_interval`; only a user of the system account may ask."""
    try:
        reply = await link.request("$SYS.REQ.SERVER.PING.JSZ", within=1.0)
        config: dict[str, Any] = msgspec.json.decode(reply.data)["data"]["config"]
    except (Lost, Nobody, Denied, KeyError, msgspec.DecodeError):
        return Check("survives", "warn" if link.options.replicas < 3 else "ok", _SYNC)
    if config.get("sync_always"):
        return Check("survives", "ok", "sync_interval: always; what was acknowledged survives a power cut")
    seconds = int(config.get("sync_interval", 0)) / 1e9
    state = "warn" if link.options.replicas < 3 else "ok"
    return Check("survives", state, f"sync_interval: {seconds:g} s; a power cut can cost what came in since")


def _version(link: Link) -> Check:
    features = link.features
    return Check(
        "server", "fail" if features.old else "ok", f"NATS {features.version}, messages up to {link.max_payload} bytes"
    )


def _usage(account: dict[str, Any]) -> str:
    streams, consumers, storage = (account.get(name, 0) for name in ("streams", "consumers", "storage"))
    return f"{streams} streams, {consumers} consumers, {storage} bytes"


async def _replicas(link: Link, prefix: str) -> Check:
    info = await link.api(f"STREAM.INFO.{queues_stream(prefix)}")
    number = int(info["config"].get("num_replicas", 1))
    behind = [one for one in (info.get("cluster") or {}).get("replicas") or [] if not one.get("current")]
    if behind:
        return Check("replicas", "warn", f"{number}, {len(behind)} of them behind")
    what = "a message survives the loss of one server" if number >= 3 else "one copy: it is lost with its disk"
    return Check("replicas", "ok" if number >= 3 else "warn", f"{number}: {what}")
