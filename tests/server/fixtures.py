"""A served folder, and a client that knows nothing of us."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Http:
    """Requests to one address, by the standard library."""

    def __init__(self, address: str, **headers: str) -> None:
        self._address = address
        self._headers = headers

    def ask(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Answer:
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        named = {key.replace("_", "-"): value for key, value in {**self._headers, **headers}.items()}
        request = urllib.request.Request(self._address + path, data, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return _read(answer.status, answer.read(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return _read(error.code, error.read(), dict(error.headers))

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.ask("POST", path, {} if body is None else body, **headers)

    def queue(self, name: str, **options: Any) -> str:
        """Made, with these options; the path of its routes."""
        assert self.ask("PUT", f"/api/v1/queues/{name}", options).status == 200
        return f"/api/v1/queues/{name}"


def _read(status: int, data: bytes, headers: dict[str, str]) -> Answer:
    lower = {key.lower(): value for key, value in headers.items()}
    is_json = "json" in lower.get("content-type", "")
    return Answer(status, json.loads(data) if is_json and data else data, lower)


def packed(body: Any) -> bytes:
    return gzip.compress(json.dumps(body).encode())
