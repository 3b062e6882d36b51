"""Web applications open an app's store when they start: FastAPI, Starlette and Litestar as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import web

pytest.importorskip("fastapi", reason="a web framework is not installed")


def made(url: str) -> tuple[holdfast.App, list[str]]:
    app, sent = holdfast.App(url), list[str]()

    @app.handler("emails", str)
    async def send(address: str) -> str:
        sent.append(address)
        return f"sent to {address}"

    return app, sent


def test_fastapi_has_queues_by_dependency_and_runs_handlers(tmp_path: Path) -> None:
    from fastapi import Depends, FastAPI
    from fastapi.testclient import TestClient

    app, sent = made((tmp_path / "jobs").as_uri())
    seen: list[str] = []

    @asynccontextmanager
    async def inner(api: Any) -> AsyncIterator[None]:
        seen.append(str(api.state.holdfast.url))
        yield

    api = FastAPI(lifespan=web.lifespan(app, work=True, inner=inner))
    emails, opened = Depends(web.queue(app, "emails", str)), Depends(app.broker)

    @api.post("/send")
    async def send(to: str, queue: Any = emails) -> dict[str, str]:
        id = await queue.enqueue(to)
        return {"result": (await queue.wait(id, timeout=20)).result}

    @api.get("/queues")
    async def queues(broker: Any = opened) -> list[str]:
        return [info.name for info in await broker.queues()]

    for _ in range(2):  # an application starts again
        with TestClient(api) as client:
            assert client.post("/send", params={"to": "ada"}).json() == {"result": "sent to ada"}
            assert client.get("/queues").json() == ["emails"]
    assert sent == ["ada", "ada"]
    assert len(seen) == 2


def test_starlette_without_work_only_opens_the_store() -> None:
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    app, sent = made("memory://")
    with TestClient(Starlette(lifespan=web.lifespan(app))) as client:
        client.portal.call(app.handlers["emails"].enqueue, "ada")  # type: ignore[union-attr]
        assert client.portal.call(_waiting, app) == 1  # type: ignore[union-attr]
    assert sent == []


async def _waiting(app: holdfast.App) -> int:
    return (await (await app.queue("emails")).stats()).pending


def test_litestar_takes_the_same_lifespan() -> None:
    from litestar import Litestar, post
    from litestar.di import Provide
    from litestar.testing import TestClient

    app, sent = made("memory://")

    @post("/send")
    async def send(to: str, queue: Any) -> str:
        id = await queue.enqueue(to)
        return str((await queue.wait(id, timeout=20)).result)

    emails = Provide(web.queue(app, "emails", str))
    api = Litestar([send], lifespan=[web.lifespan(app, work=["emails"])], dependencies={"queue": emails})
    with TestClient(api) as client:
        assert client.post("/send", params={"to": "ada"}).text == "sent to ada"
    assert sent == ["ada"]


async def test_a_lifespan_that_fails_leaves_the_store_closed() -> None:
    class Api:
        state = type("State", (), {})()

    app, _ = made("memory://")
    with pytest.raises(RuntimeError, match="no"):
        async with web.lifespan(app, work=True)(Api()):
            raise RuntimeError("no")
    assert app._broker is None
