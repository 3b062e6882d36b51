"""The warning about `sync_interval`: from the first command of a day, not from each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers.nats import Server

LIST = [sys.executable, "-c", "from holdfast.cli import main; main()", "queue", "list"]


def test_sync_interval_is_told_once_per_store_and_day(server: Server, tmp_path: Path) -> None:
    def told(prefix: str) -> int:
        env = {
            **os.environ,
            "HOLDFAST_URL": server.url,
            "HOLDFAST_STORE_PREFIX": prefix,
            "XDG_CACHE_HOME": str(tmp_path),
        }
        done = subprocess.run(LIST, env=env, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
        return done.stderr.count("sync_interval: always")

    assert [told("one"), told("one"), told("two")] == [1, 0, 1]
