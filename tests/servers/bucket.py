"""A small S3 in memory: honest, or with one of the lies that some servers tell about conditional writes.

It believes every signature and knows one bucket: for tests of how a client treats servers, and for measurements that
must not measure the server.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count
from types import TracebackType
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from .http import HttpServer, Request, Response
from .s3 import BUCKET, url

Lie: TypeAlias = Literal["", "ignores If-Match", "ignores If-None-Match", "checks without atomicity", "read-only"]
LIES: tuple[Lie, ...] = ("ignores If-Match", "ignores If-None-Match", "checks without atomicity")
_PAGE = 1000
_GAP = 0.02  # seconds between the check and the write of a server that is not atomic


@dataclass(frozen=True)
class Item:
    data: bytes
    tag: str
    written: datetime


class BucketServer:
    """`with BucketServer() as server: server.url("prefix")`."""

    def __init__(self, lie: Lie = "") -> None:
        self.items: dict[str, Item] = {}
        self._keys: list[str] = []  # in order
        self._lie = lie
        self.ahead = timedelta()  # of its clock
        self._server = HttpServer(self._handle)
        self._numbers = count(1)

    @property
    def endpoint(self) -> str:
        return self._server.endpoint

    @property
    def port(self) -> int:
        return self._server.port

    def url(self, prefix: str = "", *, endpoint: str | None = None) -> str:
        """What `holdfast.connect` takes; `endpoint` when something stands in between."""
        return url(endpoint or self.endpoint, prefix)

    def __enter__(self) -> BucketServer:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    # ------------------------------------------------------------------ requests

    async def _handle(self, request: Request) -> Response | None:
        response = await self._answer(request)
        response.headers["date"] = format_datetime(self._now(), usegmt=True)
        response.headers["x-amz-request-id"] = str(next(self._numbers))
        return response

    async def _answer(self, request: Request) -> Response:
        parts = urlsplit(request.target)
        _, bucket, *rest = parts.path.split("/", 2)
        key, query = unquote(rest[0]) if rest else "", dict(parse_qsl(parts.query, keep_blank_values=True))
        if bucket != BUCKET:
            return _refuse(404, "NoSuchBucket")
        if self._lie == "read-only" and (request.method in ("PUT", "DELETE") or "delete" in query):
            return _refuse(403, "AccessDenied")
        match request.method:
            case "PUT":
                return await self._put(key, request)
            case "GET" if "list-type" in query:
                return self._list(query)
            case "GET" | "HEAD":
                return self._get(key, request)
            case "DELETE":
                self._remove(key)
                return Response(204)
            case "POST" if "delete" in query:
                return self._remove_many(request)
        return _refuse(405, "MethodNotAllowed")

    async def _put(self, key: str, request: Request) -> Response:
        refusal = self._check(key, request)
        if self._lie == "checks without atomicity":
            await asyncio.sleep(_GAP)
        if refusal is not None:
            return refusal
        if key not in self.items:
            insort(self._keys, key)
        self.items[key] = Item(request.body, _tag(request.body), self._now().replace(microsecond=0))
        return Response(200, {"etag": self.items[key].tag})

    def _check(self, key: str, request: Request) -> Response | None:
        item = self.items.get(key)
        expected = request.headers.get("if-match")
        if request.headers.get("if-none-match") == "*" and item is not None and self._lie != "ignores If-None-Match":
            return _refuse(412, "PreconditionFailed")
        if expected is None or self._lie == "ignores If-Match":
            return None
        if item is None:
            return _refuse(404, "NoSuchKey")
        return None if item.tag == expected else _refuse(412, "PreconditionFailed")

    def _get(self, key: str, request: Request) -> Response:
        item = self.items.get(key)
        if item is None:
            return _refuse(404, "NoSuchKey")
        headers = {"etag": item.tag, "last-modified": format_datetime(item.written, usegmt=True)}
        if request.headers.get("if-none-match") == item.tag:
            return Response(304, headers)
        headers["content-length"] = str(len(item.data))
        if request.method == "HEAD":
            return Response(200, headers)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if wanted is None:
            return Response(200, headers, item.data)
        start, end = _range(wanted.group(1), wanted.group(2), len(item.data))
        headers["content-range"] = f"bytes {start}-{end - 1}/{len(item.data)}"
        return Response(206, headers, item.data[start:end])

    def _remove(self, key: str) -> None:
        if self.items.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def _remove_many(self, request: Request) -> Response:
        keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
        for key in keys:
            self._remove(key)
        gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return _xml(f"<DeleteResult>{gone}</DeleteResult>")

    # ------------------------------------------------------------------ lists

    def _list(self, query: dict[str, str]) -> Response:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(_PAGE, int(query.get("max-keys", _PAGE)))
        keys: list[str] = []
        groups: list[str] = []
        for key in self._from(prefix, after):
            if len(keys) + len(groups) == most:
                return _page(prefix, [(key, self.items[key]) for key in keys], groups, max([*keys, *groups]))
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                group = prefix + rest[: rest.index(delimiter) + 1]
                if group not in groups and not after.startswith(group):
                    groups.append(group)
            else:
                keys.append(key)
        return _page(prefix, [(key, self.items[key]) for key in keys], groups, None)

    def _from(self, prefix: str, after: str) -> Iterator[str]:
        for place in range(bisect_left(self._keys, max(prefix, after)), len(self._keys)):
            key = self._keys[place]
            if not key.startswith(prefix):
                return
            if key > after:
                yield key


def _tag(data: bytes) -> str:
    """Equal bytes have equal tags, as on S3."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _range(first: str, last: str, size: int) -> tuple[int, int]:
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


def _page(prefix: str, found: list[tuple[str, Item]], groups: list[str], more: str | None) -> Response:
    rows = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{item.written:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
        f"<ETag>{escape(item.tag)}</ETag><Size>{len(item.data)}</Size></Contents>"
        for key, item in found
    )
    rows += "".join(f"<CommonPrefixes><Prefix>{escape(group)}</Prefix></CommonPrefixes>" for group in groups)
    rest = "" if more is None else f"<NextContinuationToken>{escape(more)}</NextContinuationToken>"
    return _xml(
        f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<IsTruncated>{str(more is not None).lower()}</IsTruncated>{rest}{rows}</ListBucketResult>"
    )


def _xml(text: str, status: int = 200) -> Response:
    declared = f'<?xml version="1.0" encoding="UTF-8"?>{text}'
    return Response(status, {"content-type": "application/xml"}, declared.encode())


def _refuse(status: int, code: str) -> Response:
    return _xml(f"<Error><Code>{code}</Code><Message>{code}</Message></Error>", status)
