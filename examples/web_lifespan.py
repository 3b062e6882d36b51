"""A web application that enqueues and works: python examples/web_lifespan.py [URL] [litestar|fastapi|starlette].

The store opens and closes with the application, and so does the worker: what is in hand ends before the process does.
"""

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

import holdfast

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"


async def welcome(address: str) -> str:
    print(f"welcome, {address}")
    return "sent"


@asynccontextmanager
async def lifespan(web: Any) -> AsyncIterator[None]:
    """The same for Litestar, FastAPI and Starlette."""
    async with holdfast.connect(URL) as broker:
        emails = await broker.queue("emails")
        async with emails.worker(welcome):  # leave this out where workers are processes of their own
            web.state.emails = emails
            yield
    print("stopped")


async def sign_up(web: Any, address: str) -> dict[str, str]:
    """What the route does, in every framework."""
    return {"id": await web.state.emails.enqueue(address)}


def on_litestar() -> Any:
    from litestar import Litestar, Request, post

    @post("/sign-up/{address:str}")
    async def route(request: Request[Any, Any, Any], address: str) -> dict[str, str]:
        return await sign_up(request.app, address)

    return Litestar([route], lifespan=[lifespan])


def on_fastapi() -> Any:
    from fastapi import FastAPI

    async def route(address: str) -> dict[str, str]:
        return await sign_up(web, address)

    web = FastAPI(lifespan=lifespan)
    web.add_api_route("/sign-up/{address}", route, methods=["POST"], status_code=201)
    return web


def on_starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def route(request: Any) -> Any:
        return JSONResponse(await sign_up(request.app, request.path_params["address"]), 201)

    return Starlette(routes=[Route("/sign-up/{address}", route, methods=["POST"])], lifespan=lifespan)


FRAMEWORKS = {"litestar": on_litestar, "fastapi": on_fastapi, "starlette": on_starlette}


async def main(framework: str) -> None:
    """Serve it, ask it once as a browser would, and stop."""
    web = FRAMEWORKS[framework]()
    server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    request = urllib.request.Request(f"http://127.0.0.1:{port}/sign-up/ada@example.com", method="POST")
    answer = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=30).read()))
    record = await web.state.emails.wait(answer["id"], timeout=30)
    print(f"the message is {record.status}")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[2] if len(sys.argv) > 2 else "litestar"))
