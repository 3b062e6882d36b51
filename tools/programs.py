"""Make sure that the programs are there that the tests start and PyPI does not have: Java, Node, Chromium.

As root, or in CI, a missing one is installed from Debian's packages; everybody else is told how.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """What is asked for its version, and how to get it."""

    name: str
    command: str
    flag: str
    pattern: str
    oldest: int
    packages: tuple[str, ...]
    why: str
    otherwise: str
    home: str = ""  # of the environment: where it lies when it is not on the path


JAVA = Program(
    "Java", "java", "-version", r'version "(?:1\.)?(\d+)', 17, ("openjdk-17-jre-headless",),
    "The tests of the Spark pipeline", "macOS: `brew install openjdk@17`), or set JAVA_HOME to one", "JAVA_HOME",
)  # fmt: skip
NODE = Program(
    "Node", "node", "--version", r"^v(\d+)", 18, ("nodejs", "npm"),
    "The tests of az:// (Azurite) and of the page (axe-core)", "macOS: `brew install node`)",
)  # fmt: skip
CHROMIUM = Program(
    "Chromium", "chromium", "--version", r"Chromium (\d+)", 120, ("chromium",),
    "The tests of the page of `holdfast serve`", "macOS: `brew install --cask chromium`)",
)  # fmt: skip


def version(program: Program, text: str) -> int | None:
    """The major version that it tells; None: it does not say."""
    match = re.search(program.pattern, text)
    return int(match[1]) if match else None


def found(program: Program, environment: Mapping[str, str]) -> int | None:
    """The version of the one that would be started; None: there is none."""
    home = environment.get(program.home)
    path = environment.get("PATH")
    command = os.path.join(home, "bin", program.command) if home else shutil.which(program.command, path=path)
    if not command:
        return None
    try:
        done = subprocess.run([command, program.flag], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return version(program, done.stderr + done.stdout)


def may_install(environment: Mapping[str, str], *, root: bool) -> bool:
    """Whether installing is ours to do: as root, or in CI, where there is apt."""
    return (root or bool(environment.get("CI"))) and shutil.which("apt-get", path=environment.get("PATH")) is not None


def install(packages: tuple[str, ...], run: Callable[[list[str]], int], *, root: bool) -> bool:
    """By apt, as root; whether it went well."""
    sudo = [] if root else ["sudo", "-n"]
    steps = (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages])
    return all(run([*sudo, *step]) == 0 for step in steps)


def shown(command: list[str]) -> int:
    print("+ " + " ".join(command), flush=True)
    return subprocess.run(command, check=False).returncode


def told(program: Program, known: int | None) -> str:
    """What somebody must do who lacks it."""
    state = f"this is {program.name} {known}" if known else "there is none"
    packages = " ".join(program.packages)
    return (
        f"{program.why} need {program.name} {program.oldest} or newer, and {state}. Install one (Debian and Ubuntu: "
        f"`sudo apt-get install {packages}`; {program.otherwise}, and run make again."
    )


def ensure(
    program: Program, environment: Mapping[str, str], run: Callable[[list[str]], int] = shown, *, root: bool
) -> bool:
    """Whether it is there in the end."""
    known = found(program, environment)
    if (known or 0) < program.oldest and may_install(environment, root=root):
        install(program.packages, run, root=root)
        known = found(program, environment)
    if (known or 0) < program.oldest:
        print(told(program, known), file=sys.stderr)
        return False
    return True


def has_npm_parts() -> bool:
    """Whether Azurite and axe-core are in the user's cache in the end; a test has not the minute that npm may take."""
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from tests.servers import azure, chromium

    try:
        azure.program()
        chromium.axe()
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    there = [ensure(program, os.environ, root=os.geteuid() == 0) for program in (JAVA, NODE, CHROMIUM)]
    sys.exit(0 if all(there) and has_npm_parts() else 1)
