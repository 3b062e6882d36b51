"""The guides about serving: their commands and programs run, on a server of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

SHOWN = "http://127.0.0.1:8731"  # where the guides say that the server is
LOUD = 'curl() { command curl -sS --fail-with-body --max-time 40 "$@"; }\n'  # an error ends the script


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerThread]:
    with ServerThread(f"file://{tmp_path}/store") as server:
        yield server


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / "guide" / page).read_text(), re.M | re.S)


def run(*command: str, given: str) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_curl_commands_run(own: ServerThread) -> None:
    scripts = [block for block in blocks("serving.md", "sh") if "curl" in block]
    assert len(scripts) == 5
    run("bash", "-e", "-o", "pipefail", given=LOUD + "\n".join(scripts).replace(SHOWN, own.address))
    stats = Http(own.address).get("/api/v1/stats").body["emails"]
    assert (stats["pending"], stats["delayed"], stats["completed"]) == (2, 1, 1)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
def test_the_program_for_node_runs(own: ServerThread) -> None:
    [program] = blocks("from-node.md", "js")
    assert run("node", "-", given=program.replace(SHOWN, own.address)) == "3 thumbnails\n"
    assert Http(own.address).get("/api/v1/stats").body["thumbnails"]["completed"] == 3


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
@pytest.mark.parametrize("unit", ["holdfast-serve.service", "holdfast-worker@.service"])
def test_the_units_are_read_without_a_complaint(unit: str, tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "systemd" / unit).read_text().replace("/opt/holdfast/bin/holdfast", "/bin/true")
    path = tmp_path / unit.replace("@.", "@tasks:app.")
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=50, check=False
    )
    told = [line for line in done.stderr.splitlines() if unit.partition(".")[0].rstrip("@") in line]
    assert told == []
