"""Where a SlateDB database lies: a URL taken apart, the object store it names, and the settings that fit it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from ....config import StoreOptions
from ....errors import ConfigError
from .binding import slatedb
from .disk import COMPACTIONS, LOG, MANIFESTS, TABLES

LOCAL = "file"
NAME = "slatedb"  # the folder inside the folder, or the prefix when the URL has none

# Seconds. A local flush costs a fraction of a millisecond, so every group gets one; a bucket charges for each.
FLUSH_AT_ONCE, FLUSH_TO_A_BUCKET = 0.0, 0.05
# SlateDB's own default is for ever. With its pauses between them 8 are about 6 s. On a bucket the object store
# underneath repeats what may pass by itself; what is left, a wrong key or a missing bucket, should show soon.
_RETRIES, _RETRIES_ON_A_BUCKET = 8, 3
_IN_THE_BACKGROUND = "100ms"  # bytes that nobody waits for yet

# A busy disk gets hundreds of log files a second. Nobody else reads them, so they need not stay for long: how often
# garbage is collected, and how old it must be. Longer than `disk.py` may lag behind with its note.
_COLLECTED_LOCALLY = {kind: ("30s", "60s" if kind == LOG else "300s") for kind in (LOG, TABLES, MANIFESTS, COMPACTIONS)}

_KINDS = {"s3": "S3", "gs": "GCS", "az": "AZURE", LOCAL: "LOCAL"}
# The words of the URL and what the object store calls them.
_S3 = {
    "endpoint": "aws_endpoint",
    "region": "aws_region",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "allow_http": "aws_allow_http",
}
_WORDS: dict[str, dict[str, str]] = {
    "s3": _S3,
    "gs": {"service_account": "google_service_account_path"},
    "az": {"account_name": "azure_storage_account_name", "access_key": "azure_storage_account_key"},
    LOCAL: {},
}


class Place(msgspec.Struct, frozen=True):
    """`root` is the folder, or the bucket; `path` is where in it the database lies."""

    kind: str
    root: str
    path: str
    config: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:  # the config may carry a key
        return f"Place({self.text!r})"

    @property
    def text(self) -> str:
        """For messages."""
        return self.root if self.is_local else f"slatedb+{self.kind}://{self.root}/{self.path}"

    @property
    def is_local(self) -> bool:
        return self.kind == LOCAL

    @property
    def folder(self) -> Path:
        return Path(self.root)

    def flush_interval(self, options: StoreOptions) -> float:
        """Seconds between two flushes at least."""
        if options.flush_interval is not None:
            return options.flush_interval
        return FLUSH_AT_ONCE if self.is_local else FLUSH_TO_A_BUCKET

    def object_store(self) -> Any:
        package = slatedb()
        kind = getattr(package.ObjectStoreType, _KINDS[self.kind])
        builder = package.ObjectStoreBuilder.from_env(kind)
        if self.is_local:
            builder.with_config("local_path", self.root)
        else:
            builder.with_url(f"{self.kind}://{self.root}")
        for key, value in self.config:
            builder.with_config(key, value)
        return builder.build()

    def settings(self) -> Any:
        """SlateDB's, where its own default does not do."""
        retries = _RETRIES if self.is_local else _RETRIES_ON_A_BUCKET
        chosen: dict[str, Any] = {
            "flush_interval": _IN_THE_BACKGROUND,
            "object_store_max_retries": retries,
            "compactor_options.object_store_max_retries": retries,
            "garbage_collector_options.object_store_max_retries": retries,
        }
        if self.is_local:
            # Boundary files are replaced, which a local object store cannot do: collection would stop at the first.
            chosen["garbage_collector_options.boundary_files_enabled"] = False
            for kind, (interval, age) in _COLLECTED_LOCALLY.items():
                chosen[f"garbage_collector_options.{kind}_options.interval"] = interval
                chosen[f"garbage_collector_options.{kind}_options.min_age"] = age
        settings = slatedb().Settings.default()
        for key, value in chosen.items():
            settings.set(key, json.dumps(value))
        return settings


def local(path: str | os.PathLike[str]) -> Place:
    return Place(LOCAL, os.path.abspath(path), NAME)


def take_apart(
    kind: str, bucket: str, path: str, query: list[tuple[str, str]], shown: str
) -> tuple[str, list[tuple[str, str]]]:
    """The place as text for `from_text`, and the keys of the query that are not the object store's."""
    words = _WORDS[kind]
    if not bucket:
        raise ConfigError(f"{shown}: which bucket? slatedb+{kind}://bucket/prefix")
    if "@" in bucket or ":" in bucket:
        raise ConfigError(f"{shown}: credentials and hosts go in the query or the environment, not before the bucket")
    config = {words[key]: value for key, value in query if key in words}
    if "aws_endpoint" in config and config["aws_endpoint"].startswith("http://"):
        _http_only_when_asked(config, shown)
    rest = [(key, value) for key, value in query if key not in words]
    return json.dumps([kind, bucket, path.strip("/") or NAME, sorted(config.items())]), rest


def from_text(text: str) -> Place:
    """What `take_apart` gave."""
    kind, root, path, config = json.loads(text)
    return Place(kind, root, path, tuple((key, value) for key, value in config))


def _http_only_when_asked(config: dict[str, str], shown: str) -> None:
    if config.get("aws_allow_http", "").lower() not in ("true", "1", "yes"):
        raise ConfigError(f"{shown}: an endpoint without TLS is used only with allow_http=true")
