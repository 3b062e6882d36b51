"""holdfast serve: its options, and what it refuses."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path

import pytest

from holdfast.cli.serve import _named
from tests.cli_runner import Cli
from tests.server.fixtures import Http
from tests.servers.serving import ServerProcess


@pytest.mark.timeout(120)
def test_tokens_from_a_file_and_the_environment(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("web:work:web-token-0123456789\n")
    more = {"HOLDFAST_SERVE_TOKENS": "ops:operate:ops-token-0123456789"}
    words = ("--token-file", str(tokens), "--open-metrics", "--log-format", "json")
    with ServerProcess(f"file://{tmp_path}/store", *words, **more) as server:
        for token, status in (("web-token-0123456789", 403), ("ops-token-0123456789", 200), ("nobody", 401)):
            http = Http(server.address, Authorization=f"Bearer {token}")
            assert http.get("/api/v1/doctor").status == status
        assert urllib.request.urlopen(f"{server.address}/metrics", timeout=20).status == 200
        os.kill(server.pid, signal.SIGINT)
        assert server.stop() == 0


def test_what_is_refused_before_it_serves(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "store")
    for words, sentence in (
        (("--host", "0.0.0.0"), "tokens"),
        (("--token-file", str(tmp_path / "none")), "cannot be read"),
        (("--path", "queues"), "path"),
        (("--host", "203.0.113.1", "--token-file", str(_tokens(tmp_path))), "cannot serve on"),
    ):
        assert sentence in cli.error("serve", "--port", "0", *words), words


def _tokens(folder: Path) -> Path:
    path = folder / "tokens"
    path.write_text("a:read:0123456789abcdef")
    return path


def test_several_stores_have_names() -> None:
    import typer

    assert _named([]) == {"": None}
    assert _named(["file:///a?x=1"]) == {"": "file:///a?x=1"}
    assert _named(["a=file:///a", "b=memory://"]) == {"a": "file:///a", "b": "memory://"}
    for urls in (["a=file:///a", "file:///b"], ["a=x", "a=y"]):
        with pytest.raises(typer.BadParameter):
            _named(urls)
