"""The types users see, by mypy."""

import subprocess
import sys

import pytest

from tests import ROOT


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", ["tests/typing/async_face.py", "tests/typing/sync_face.py", "src/holdfast/sync.py"])
def test_types(path, tmp_path):
    # sync.py stands here because its stub hides it from every other run.
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--cache-dir", tmp_path, path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
