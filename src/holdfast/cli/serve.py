"""holdfast serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .shell import LogFormat, Shell, command, group

if TYPE_CHECKING:
    from ..server.run import Serving
    from ..server.tokens import Tokens

app = group("Serve stores over HTTP.")

TOKENS = "HOLDFAST_SERVE_TOKENS"
PORT = 8731  # none that is commonly used


@command(app, "serve")
def serve(
    shell: Shell,
    url: Annotated[list[str] | None, typer.Option(help="A store; of several NAME=URL, each below /NAME.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = PORT,
    token_file: Annotated[
        Path | None, typer.Option(help=f"Lines name:role[:queue patterns]:token; also {TOKENS}.")
    ] = None,
    path: Annotated[str, typer.Option(help="Below which everything lies, such as /queues.")] = "",
    state: Annotated[
        Path | None, typer.Option(help="A file for the history of the page; by default next to a folder store.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Looking is all that anybody may.")] = False,
    show_payloads: Annotated[bool, typer.Option("--show-payloads", help="Also to the role read.")] = False,
    redact: Annotated[list[str] | None, typer.Option(help="A field of payloads that is never shown.")] = None,
    host_name: Annotated[list[str] | None, typer.Option(help="A name that clients may use for this server.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate (PEM), for https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    trust_proxy: Annotated[bool, typer.Option("--trust-proxy", help="Believe X-Forwarded-* headers.")] = False,
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="/metrics without a token.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Fail when a store is not there.")] = False,
    log_format: LogFormat = "text",
) -> None:
    """Serve a store over HTTP: a page for people, an API for every language, the http:// store, metrics.

    Until SIGTERM or Ctrl-C; then requests under way are answered. The address is printed first.
    """
    shell.log_as(log_format)
    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key go together")
    _serve(
        shell,
        url or [],
        {"host": host, "port": port, "trust_proxy": trust_proxy, "wait": not no_wait},
        tls=(str(tls_cert), str(tls_key)) if tls_cert else None,
        tokens=_tokens(token_file),
        host_names=(host, *(host_name or ())),
        path=path,
        state=None if state is None else str(state),
        read_only=read_only,
        show_payloads=show_payloads,
        redact=tuple(redact or ()),
        open_metrics=open_metrics,
    )


def _serve(shell: Shell, urls: list[str], how: dict[str, Any], *, tls: tuple[str, str] | None, **settings: Any) -> None:
    from .. import server
    from ..errors import ConfigError

    try:
        from ..server.run import run
        from ..server.settings import ServerSettings
    except ImportError as error:
        raise ConfigError(server.NEEDS) from error

    def started(serving: Serving) -> None:
        shell.done(f"serving on {serving.address}", url=serving.address)

    run(_named(urls), ServerSettings(**settings), tls=tls, started=started, **how)


def _tokens(file: Path | None) -> Tokens:
    from ..errors import ConfigError
    from ..server.tokens import Tokens

    try:
        lines = file.read_text("utf-8").splitlines() if file else []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    return Tokens([*lines, *os.environ.get(TOKENS, "").splitlines()])


def _named(urls: list[str]) -> dict[str, str | None]:
    """One store alone has no name."""
    from .. import config

    if len(urls) <= 1:
        return {"": urls[0] if urls else None}
    named: dict[str, str | None] = {}
    for each in urls:
        name, sign, url = each.partition("=")
        if not sign or "/" in name or name in named:
            raise typer.BadParameter("several stores have names of their own: --url jobs=file:///… --url mail=…")
        named[config.queue_name(name, what="bad name of a store")] = url
    return named
