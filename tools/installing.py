"""Install into an environment: by uv, in a fraction of pip's time, or by pip where uv does not work.

python tools/installing.py requirements/run.txt    the pinned requirements and this package, into this environment
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
PINNED_UV = "requirements/uv.txt"
_PATIENCE = ("--timeout", "30", "--retries", "2")  # for uv alone: a network that does not answer must not take minutes
_SECTIONS = ("global", "install", ":env:")  # what counts for `pip install`; a later one goes before
_SETTING = re.compile(r"([^=]+)\.([^.=]+)=(.+)")
_SAYS_NO = ("0", "false", "no", "off", "n", "f")
# pip's settings, with the variable that tells uv the same and what stands between several values there.
_TOLD_BY = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "proxy": ("ALL_PROXY", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}


def pip_settings(listed: str) -> dict[str, str]:
    """What `pip config list` says, as far as `pip install` goes by it."""
    found = [match.groups() for line in listed.splitlines() if (match := _SETTING.fullmatch(line))]
    known = [(section, key, ast.literal_eval(value)) for section, key, value in found if section in _SECTIONS]
    known.sort(key=lambda one: _SECTIONS.index(one[0]))
    return {key: value for _, key, value in known}


def uv_settings(pip: Mapping[str, str]) -> dict[str, str]:
    """The same for uv, which does not read pip's configuration.

    As with pip every index may have every package: hashes say which file is the right one, not the place.
    """
    told = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for key, value in pip.items():
        name, between = _TOLD_BY.get(key, ("", ""))
        if name and value.strip() and not (key == "no-index" and value.lower() in _SAYS_NO):
            told[name] = between.join(value.split())
    return told


def uv_environment(given: Mapping[str, str]) -> dict[str, str]:
    """What uv is started with: pip's settings, and before them what the user tells uv itself."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False, env=dict(given)
    )
    return {**uv_settings(pip_settings(listed.stdout)), **given}


def shown(command: list[str], environment: Mapping[str, str]) -> int:
    """Run one step, its command and output shown; its exit code."""
    print("+ " + " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, check=False, env=dict(environment)).returncode


def get_uv() -> None:
    """The pinned uv into this environment. Without a wheel for this platform there is none."""
    pinned = ["--quiet", "--only-binary=:all:", "--no-deps", "--require-hashes", "-r", PINNED_UV]
    if shown([sys.executable, "-m", "pip", "install", *_PATIENCE, *pinned], os.environ):
        UV.unlink(missing_ok=True)  # one of another version is not what was asked for


def install(python: str, *arguments: str) -> int:
    """`pip install` for the environment of an interpreter, by uv where that works; the exit code."""
    if UV.exists():
        if not shown([str(UV), "pip", "install", "--python", python, *arguments], uv_environment(os.environ)):
            return 0
        print("uv could not install this: now pip tries, which takes longer", flush=True)
    else:
        print("there is no uv for this machine: pip installs, which takes longer", flush=True)
    return shown([python, "-m", "pip", "install", *arguments], os.environ)


def main(pinned: str) -> int:
    get_uv()
    # The file names every package: resolving would only let a newer release of a dependency with extras in.
    code = install(sys.executable, "--no-deps", "--require-hashes", "-r", pinned)
    return code or install(sys.executable, "--no-deps", "--no-build-isolation", "-e", ".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
