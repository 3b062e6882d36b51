"""The fast tests under the other Pythons that are supported, as far as this machine has them.

Each has an environment of its own, .venv-3.x, made once from pinned requirements. Which ones were not run is said.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import installing
from suite import Suite

ROOT = Path(__file__).resolve().parent.parent
PINNED = "requirements/pythons.txt"
FAST = [
    "tests/conformance/test_memory.py", "tests/conformance/test_file.py", "tests/test_app.py", "tests/test_codecs.py",
    "tests/test_queue.py", "tests/test_retry.py", "tests/test_sync.py", "tests/worker/test_worker.py",
    "tests/worker/test_callbacks.py", "tests/worker/test_heartbeat.py", "tests/django",
    # Many processes, a server of PostgreSQL, and figures in milliseconds: once is enough.
    "-k", "not test_eight_ and not own_transaction and not never_yields",
]  # fmt: skip
AT_ONCE = "2"  # beside the whole suite
_ASKED = "import sys, venv, ensurepip; print(*sys.version_info[:3])"


def supported() -> list[str]:
    """The versions that pyproject.toml names."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())


def candidates(environment: Mapping[str, str]) -> Iterable[Path]:
    """Where interpreters lie: on the path, and among pyenv's, which are not on it."""
    for folder in environment.get("PATH", "").split(os.pathsep):
        yield from sorted(Path(folder).glob("python3.[1-9][0-9]"))
    pyenv = environment.get("PYENV_ROOT") or str(Path(environment.get("HOME", "/")) / ".pyenv")
    yield from sorted(Path(pyenv).glob("versions/3.[1-9][0-9].*/bin/python"))


def version(python: Path) -> tuple[int, ...]:
    """Of an interpreter that can make environments; empty for everything else that has such a name."""
    try:
        done = subprocess.run([str(python), "-c", _ASKED], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def found(environment: Mapping[str, str]) -> dict[str, Path]:
    """The newest interpreter of each version from 3.11 on."""
    known = sorted({(version(one), one) for one in candidates(environment)})
    return {f"{one[0]}.{one[1]}": python for one, python in known if one >= (3, 11)}


def environment_of(name: str, python: Path) -> Path | None:
    """The interpreter of its environment, with the requirements in it; None: they cannot be had."""
    folder = ROOT / f".venv-{name}"
    made, stamp = folder / "bin" / "python", folder / "holdfast-setup"
    wanted = hashlib.sha256((ROOT / PINNED).read_bytes()).hexdigest()
    if version(made) and stamp.exists() and stamp.read_text() == wanted:
        return made
    if installing.shown([str(python), "-m", "venv", "--clear", str(folder)], os.environ):
        return None
    if installing.install(str(made), "--only-binary=:all:", "--no-deps", "--require-hashes", "-r", PINNED):
        return None
    stamp.write_text(wanted)
    return made


def suite_of(name: str, there: Mapping[str, Path]) -> Suite | None:
    """The fast tests under one version; what keeps them from being run is said and is no failure."""
    if name not in there:
        print(f"Python {name}: not run, it is not on this machine", flush=True)
        return None
    python = environment_of(name, there[name])
    if python is None:
        print(f"Python {name}: not run, its requirements cannot be installed here", flush=True)
        return None
    pytest = [str(python), "-m", "pytest", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    folder = python.parent.parent / "tests"
    return Suite(f"Python {name}", pytest, ["-n", AT_ONCE, *FAST], folder=folder, env=environment, quiet=True)


def suites() -> list[Suite]:
    """Of every supported version but this one, under which the whole suite runs."""
    there = found(os.environ)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    known = [suite_of(name, there) for name in supported() if name != ours]
    return [suite for suite in known if suite is not None]
