"""A store of each kind, as a URL of kombu: fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import holdfast.kombu  # noqa: F401 - makes the URLs known
from holdfast.kombu.link import close_all
from tests.servers.nats import Server
from tests.servers.serving import ServerThread
from tests.servers.shared import shared


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with shared(tmp_path_factory, "nats", lambda: Server().start()) as server:
        yield server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServerThread]:
    with ServerThread(f"file://{tmp_path / 'served'}") as server:
        yield server
        close_all()  # before its server


@pytest.fixture(params=["memory", "file", "postgresql", "s3", "nats", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """On every kind of store."""
    yield f"holdfast+{url_of(request.param, request, tmp_path)}"
    close_all()


@pytest.fixture
def file_url(tmp_path: Path) -> Iterator[str]:
    yield f"holdfast+file://{tmp_path / 'store'}"
    close_all()


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "memory":
        return f"memory://m{uuid4().hex}"
    if kind == "file":
        return f"file://{folder / 'store'}"
    if kind == "postgresql":
        return str(request.getfixturevalue("postgres").url)
    if kind == "s3":
        return str(request.getfixturevalue("s3").url)
    if kind == "http":
        return str(request.getfixturevalue("served").address)
    server = request.getfixturevalue("nats_server")
    return f"{server.url}?prefix=k{uuid4().hex[:12]}"
