"""An environment for the peers alone, made once from pinned, hashed requirements and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..errors import ConfigError


def requirements(path: Path | None = None, *, name: str = "peers") -> Path:
    """The pinned list: given, in the current folder, or in the checkout this file lies in."""
    pinned = Path("requirements") / f"{name}.txt"
    for candidate in (path, pinned, Path(__file__).resolve().parents[3] / pinned):
        if candidate is not None and candidate.is_file():
            return candidate
    raise ConfigError(f"no {pinned} here; run in a checkout of Holdfast or give --requirements")


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"


def peers_python(pinned: Path) -> Path:
    """The Python of the peers' environment; makes it when it is not there."""
    digest = hashlib.sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache_folder() / f"peers-{digest}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(pinned))
        (folder / "complete").touch()
    return python


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"the peers' environment could not be made: {error.stderr.strip()[-500:]}") from error
