"""Where a SlateDB database lies: a URL taken apart, the object store it names, and the settings that fit it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ....config import StoreOptions
from ....errors import ConfigError
from ..bucket import address
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
# The words of the URL and of our options, and what SlateDB's object store calls them.
_WORDS: dict[str, dict[str, str]] = {
    "s3": {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "endpoint": "aws_endpoint",
        "region": "aws_region",
    },
    "gs": {
        "service_account_path": "google_service_account_path",
        "service_account_key": "google_service_account_key",
    },
    "az": {
        "account_name": "azure_storage_account_name",
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_key",
        "endpoint": "azure_endpoint",
    },
}


class Place(msgspec.Struct, frozen=True):
    """`root` is the folder, or the bucket; `path` is where in it the database lies."""

    kind: str
    root: str
    path: str
    config: tuple[tuple[str, str], ...] = ()  # the object store's
    url: str = ""  # of a bucket, as the engine without SlateDB takes it

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
        if not self.is_local:
            address.check_environment(self.kind, self.text)
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


def located(place: str, options: StoreOptions) -> Place:
    """What a URL names: a folder, or a bucket as `take_apart` gave it."""
    return local(place) if place.startswith("/") else in_bucket(place, options)


def take_apart(url: str, shown: str) -> tuple[str, list[tuple[str, str]]]:
    """The bucket's own URL, and the keys of the query that are ours."""
    try:
        return address.take_apart(url.partition("+")[2], shown)
    except ConfigError as error:
        raise ConfigError(str(error).replace("write ", "write slatedb+")) from None


def in_bucket(url: str, options: StoreOptions) -> Place:
    """`url` is what `take_apart` gave."""
    parts = urlsplit(url)
    shown = f"slatedb+{address.shown(url)}"
    said: dict[str, str] = dict(parse_qsl(parts.query))
    if (endpoint := address.endpoint(options, shown)) is not None:
        said["endpoint"] = endpoint
    if options.region is not None and parts.scheme == "s3":
        said["region"] = options.region
    words = _WORDS[parts.scheme]
    for word in said:
        if word not in words:
            raise ConfigError(f"{shown}: {word} cannot be used here")
    config = [(words[word], value) for word, value in said.items()]
    if options.allow_http:
        config.append(("allow_http", "true"))
    return Place(parts.scheme, parts.netloc, parts.path.strip("/") or NAME, tuple(sorted(config)), url)
