"""Make sure that there is a Java for the tests on Spark.

As root, or in CI, a missing one is installed (Debian's openjdk-17-jre-headless); everybody else is told how.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

OLDEST = 17
PACKAGE = "openjdk-17-jre-headless"
HOW = (
    f"The tests of the Spark pipeline need Java {OLDEST} or newer, and {{found}}. Install one (Debian and Ubuntu: "
    f"`sudo apt-get install {PACKAGE}`; macOS: `brew install openjdk@17`), or set JAVA_HOME to one, and run make again."
)


def version(text: str) -> int | None:
    """The major version that `java -version` tells; None: it does not say."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def found(environment: Mapping[str, str]) -> int | None:
    """The version of the Java that Spark would start; None: there is none."""
    home = environment.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    if not java:
        return None
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return version(done.stderr + done.stdout)


def may_install(environment: Mapping[str, str], *, root: bool) -> bool:
    """Whether installing is ours to do: as root, or in CI, where there is apt."""
    return (root or bool(environment.get("CI"))) and shutil.which("apt-get", path=environment.get("PATH")) is not None


def install(run: Callable[[list[str]], int], *, root: bool) -> bool:
    """By apt, as root; whether it went well."""
    sudo = [] if root else ["sudo", "-n"]
    steps = (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "--no-install-recommends", PACKAGE])
    return all(run([*sudo, *step]) == 0 for step in steps)


def shown(command: list[str]) -> int:
    print("+ " + " ".join(command), flush=True)
    return subprocess.run(command, check=False).returncode


def main(environment: Mapping[str, str], run: Callable[[list[str]], int] = shown, *, root: bool) -> int:
    known = found(environment)
    if known is not None and known >= OLDEST:
        return 0
    if may_install(environment, root=root) and install(run, root=root):
        known = found(environment)
    if known is not None and known >= OLDEST:
        return 0
    print(HOW.format(found=f"this is Java {known}" if known else "there is none"), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(os.environ, root=os.geteuid() == 0))
