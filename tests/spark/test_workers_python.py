"""`register` looks at the Python of Spark's workers."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from holdfast.errors import ConfigError
from holdfast.spark import workers_python


class Session:
    """What is looked at of a session."""

    def __init__(self, python, master="local[2]"):
        self._sc = self
        self.pythonExec, self.master = python, master


@pytest.fixture
def bare(tmp_path):
    """Another environment of the same Python, without packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


@pytest.fixture
def older(tmp_path):
    """A Python that says it is 3.9."""
    program = tmp_path / "python3.9"
    program.write_text("#!/bin/sh\necho 3.9\n")
    program.chmod(0o755)
    return str(program)


def test_a_python_that_cannot_serve_is_named_with_the_way_out(bare, older, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)  # a session of Spark, started by another test, sets it
    way_out = rf"set PYSPARK_PYTHON={sys.executable} before"
    with pytest.raises(ConfigError, match=rf"{bare}, which cannot import holdfast.spark \(Module.*{way_out}"):
        workers_python.check(Session(bare))
    with pytest.raises(ConfigError, match=rf"which is Python 3\.9 and not .*{way_out}"):
        workers_python.check(Session(older))
    with pytest.raises(ConfigError, match=rf"no such program.*{way_out}"):
        workers_python.check(Session(str(tmp_path / "nothing")))


def test_a_python_that_can_serve_or_cannot_be_seen_is_left_alone(tmp_path):
    workers_python.check(Session(sys.executable))
    workers_python.check(Session(str(tmp_path / "nothing"), master="yarn"))
    workers_python.check(object())  # a session of Spark Connect: its workers are elsewhere
    twin = tmp_path / "python"
    twin.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    twin.chmod(0o755)
    assert shutil.which(str(twin))
    workers_python.check(Session(str(twin)))


def test_a_session_is_looked_at_as_it_is(spark):
    """The attributes of the stand-in are those of Spark."""
    assert spark._sc.pythonExec == sys.executable
    assert spark._sc.master.startswith("local")
    workers_python.check(spark)
