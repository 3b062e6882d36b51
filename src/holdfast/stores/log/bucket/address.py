"""From a URL to an open bucket: `s3://bucket/prefix`, `gs://…`, `az://container/prefix`. Keys are never shown."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from ....config import StoreOptions
from ....errors import ConfigError

# What may be said in the query besides our options; everything else comes from the provider's usual environment.
KEYS = {
    "s3": ("access_key_id", "secret_access_key", "session_token", "checksum_algorithm"),
    "gs": ("service_account_path", "service_account_key"),
    "az": ("account_name", "account_key", "sas_token"),
}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,221}")
_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9_.~/-]*)?")
_VARIABLES = {"s3": "AWS_", "az": "AZURE_", "gs": "-"}  # which drivers read; Google's hold JSON of several lines
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_SEGMENT = re.compile(r"[A-Za-z0-9_.=@+-]{1,200}")


def take_apart(url: str, shown: str) -> tuple[str, list[tuple[str, str]]]:
    """The URL with only its own query keys, checked, and the rest of the query."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if "@" in parts.netloc:
        raise ConfigError(f"{shown}: keys go into the query or the environment, not before the bucket")
    if not parts.netloc:
        raise ConfigError(f"{shown}: which bucket? write {scheme}://bucket/prefix")
    if not _BUCKET.fullmatch(parts.netloc):
        raise ConfigError(f"{shown}: a bucket's name has at least 3 letters, digits and ._-")
    prefix = unquote(parts.path).strip("/")
    for segment in prefix.split("/") if prefix else ():
        if not _SEGMENT.fullmatch(segment) or set(segment) == {"."}:
            raise ConfigError(f"{shown}: the prefix is letters, digits and _.=@+- between single slashes")
    query = parse_qsl(parts.query, keep_blank_values=True)
    theirs = [(key, value) for key, value in query if key in KEYS[scheme]]
    place = urlunsplit((scheme, parts.netloc, f"/{prefix}" if prefix else "", urlencode(theirs), ""))
    return place, [(key, value) for key, value in query if key not in KEYS[scheme]]


def shown(place: str) -> str:
    """The bucket as errors name it."""
    return place.partition("?")[0]


def has_prefix(place: str) -> bool:
    """Whether it is a part of its bucket."""
    return bool(urlsplit(place).path.strip("/"))


def server(place: str, options: StoreOptions) -> str:
    """Whose clock it is: buckets of one server share it."""
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc} {options.endpoint or ''}"


def endpoint(options: StoreOptions, shown: str) -> str | None:
    """The endpoint as a driver takes it; one that is no URL would end in a panic of the driver's."""
    text = options.endpoint
    if text is None:
        return None
    if not _ENDPOINT.fullmatch(text):
        raise ConfigError(f"{shown}: the endpoint is a URL such as https://host:9000")
    if text.startswith("http://") and not options.allow_http:
        raise ConfigError(f"{shown}: a plain http endpoint needs allow_http=true")
    return text.rstrip("/")


def check_environment(scheme: str, shown: str) -> None:
    """A key with a newline, as of a file that ends with one, would end every request in a panic of the driver's."""
    for name, value in os.environ.items():
        if name.startswith(_VARIABLES[scheme]) and _CONTROL.search(value):
            raise ConfigError(f"{shown}: the variable {name} holds a newline or another control character")


def bucket(place: str, options: StoreOptions, *, retries: int = 0) -> Any:
    """An obstore store on the place. Its own retries are off unless asked for: only we know what may be repeated."""
    try:
        from obstore import store as stores
    except ImportError as error:
        raise ConfigError("buckets need obstore: pip install 'holdfast[s3]'") from error
    parts = urlsplit(place)
    check_environment(parts.scheme, shown(place))
    theirs: dict[str, Any] = dict(parse_qsl(parts.query))
    if (address := endpoint(options, shown(place))) is not None:
        theirs["endpoint"] = address
    if parts.scheme == "s3" and options.region is not None:
        theirs["region"] = options.region
    kind = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[parts.scheme]
    second = timedelta(seconds=1)
    try:
        return kind(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            config=theirs,
            client_options={
                "allow_http": options.allow_http,
                "timeout": timedelta(seconds=options.operation_timeout),
                "connect_timeout": timedelta(seconds=min(options.connect_timeout, 5.0)),
            },
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=options.operation_timeout),
                "backoff": {"init_backoff": second, "max_backoff": second, "base": 2},
            },
        )
    except Exception:  # noqa: BLE001  the driver's text may repeat what it was given
        raise ConfigError(f"{shown(place)}: its settings cannot be used; check endpoint, region and keys") from None
