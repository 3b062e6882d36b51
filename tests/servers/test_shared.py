"""One server for all processes of a run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from tests import ROOT
from tests.servers.nats import Server
from tests.servers.shared import ForeignProcess, shared

OTHER = """
import sys
from pathlib import Path
from tests.servers.nats import Server
from tests.servers.shared import shared

class Factory:
    def getbasetemp(self):
        return Path(sys.argv[1])

def start():
    raise AssertionError("there is one")

with shared(Factory(), "nats", start) as server:
    print(server.port, flush=True)
    sys.stdin.readline()
"""


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_last_to_leave_stops_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    # both as workers of one run: what they have in common is the folder above their own
    run = tmp_path_factory.mktemp("run")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTEST_XDIST_WORKER": "gw1"}

    class Factory:
        def getbasetemp(self):
            return run / "gw0"

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_XDIST_WORKER", "gw0")
        with shared(Factory(), "nats", lambda: Server().start()) as server:  # type: ignore[arg-type]
            command = [sys.executable, "-c", OTHER, str(run / "gw1")]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            other = subprocess.Popen(command, env=environment, cwd=ROOT, **pipes)
            assert other.stdout.readline() == f"{server.port}\n"
    assert listens(server.port)  # the other one still uses it
    assert server.folder.exists()
    other.communicate("\n", timeout=30)
    assert other.returncode == 0
    assert not listens(server.port)
    assert not server.folder.exists()


def test_one_process_may_use_it_twice(tmp_path_factory: pytest.TempPathFactory) -> None:
    with shared(tmp_path_factory, "twice", lambda: Server().start()) as server:
        with shared(tmp_path_factory, "twice", lambda: Server().start()) as same:
            assert same.port == server.port
        assert listens(server.port)
    assert not listens(server.port)


def test_a_process_of_somebody_else_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    foreign = ForeignProcess(child.pid)
    assert foreign.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        foreign.wait(0.1)
    foreign.kill()
    started = time.monotonic()
    foreign.wait(30)
    assert time.monotonic() - started < 20
    child.wait()
    foreign.kill()  # gone: nothing happens
