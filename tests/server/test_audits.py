"""Who changed what: kept across a restart, shown to operators, one line each."""

from __future__ import annotations

from pathlib import Path

from holdfast.server.audits import Audits
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

TOKENS = (
    "ops:operate:operate-token-0123456789",
    "some:operate:mail-*:some-token-0123456789",
    "boss:admin:admin-token-0123456789",
    "eye:read:read-token-0123456789",
)


def test_lines_are_kept_by_store_and_read_newest_first(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    for store in ("one", "two"):
        audits = Audits(path, store)
        for number in range(3):
            audits.add("me", f"did {number} in {store}", number)
        audits.close()
    audits = Audits(path, "one")
    found = audits.newest(2)
    assert [(each.what, each.count) for each in found] == [("did 2 in one", 2), ("did 1 in one", 1)]
    assert [each.what for each in audits.newest(9, found[-1].id)] == ["did 0 in one"]
    audits.close()


def test_a_file_that_cannot_be_written_is_no_end(tmp_path: Path) -> None:
    audits = Audits(tmp_path / "none" / "state.sqlite")
    assert not audits.is_kept
    audits.add("me", "did", None)
    assert audits.newest(1)[0].count is None


def test_actions_are_lines_that_survive_the_server(tmp_path: Path) -> None:
    url, state = f"file://{tmp_path}/store", str(tmp_path / "state.sqlite")
    with ServerThread(url, tokens=TOKENS, state=state) as server:
        boss = Http(server.address, Authorization="Bearer admin-token-0123456789")
        path = boss.queue("mail-in")
        Http(server.address, Authorization="Bearer operate-token-0123456789").post(f"{path}/purge")
    with ServerThread(url, tokens=TOKENS, state=state) as server:
        ops = Http(server.address, Authorization="Bearer operate-token-0123456789")
        page = bytes(ops.get("/audit").body).decode()
        assert page.index("POST /api/v1/queues/mail-in/purge") < page.index("PUT /api/v1/queues/mail-in")
        assert "boss" in page
        for token in ("some", "read"):
            who = Http(server.address, Authorization=f"Bearer {token}-token-0123456789")
            assert who.get("/audit").status == 403
