"""Build wheel and sdist into dist/, check what is in them, and try both under every Python that this machine has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import installing
import pythons

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
OUR_KINDS = {".py", ".pyi", ".sql", ".css", ".proto", ".properties", ".typed"}
PAGE, PAGE_KINDS = "server/page", {".html", ".js", ".svg"}  # ours too, in the folder of the page that is served
VENDORED = "vendored"  # the folder that other people's files lie in, each such folder with their licences
BESIDE_SOURCE = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"}
ADDED_BY_BUILDERS = {"PKG-INFO", ".gitignore"}
_RIGHTS = re.compile(rb"copyright|@licen[cs]e|SPDX-", re.I)
_HEAD_BYTES = 2048  # rights are claimed at the top of a file
_PATIENCE_SECONDS = 600
CONFORMANCE = """
import pytest

import holdfast
from holdfast.testing import contract


class Topics(contract.Basics, contract.Leases, contract.Retries, contract.DeadLetters, contract.Batches):
    pass


class TestMemory(Topics):
    @pytest.fixture
    def place(self, tmp_path):
        self.url = f"memory://{tmp_path.name}"

    async def open_broker(self):
        return await holdfast.connect(self.url)


class TestFile(Topics):
    @pytest.fixture
    def place(self, tmp_path):
        self.url = f"file://{tmp_path}/store"

    async def open_broker(self):
        return await holdfast.connect(self.url)
"""


class Failed(Exception):
    """Something that a release must not have; the text says what."""


# ---------------------------------------------------------------------- what is in them


def tracked() -> set[str]:
    """The files of the package and beside it that are in version control."""
    listed = subprocess.run(
        ["git", "ls-files", "src", *BESIDE_SOURCE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split())


def strange(have: Iterable[str], want: Iterable[str]) -> list[str]:
    """What is there and should not be, and what is missing."""
    there, wanted = set(have), set(want)
    return sorted(f"{name} should not be in it" for name in there - wanted) + sorted(
        f"{name} is missing" for name in wanted - there
    )


def wrong_in_sdist(sdist: Path, files: set[str]) -> list[str]:
    """It holds what the wheel is built from, and nothing else."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    return strange(names - ADDED_BY_BUILDERS, files)


def wrong_in_wheel(wheel: Path, files: set[str]) -> list[str]:
    """It holds the packages, and the licence of everything that is not ours."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        ours = [name for name in names if ".dist-info/" not in name]
        heads = {name: archive.open(name).read(_HEAD_BYTES) for name in ours}
    licences = [name.partition(".dist-info/licenses/")[2] for name in names if ".dist-info/licenses/" in name]
    package = {name.removeprefix("src/") for name in files if name.startswith("src/")}
    missing = [] if "LICENSE" in licences else ["LICENSE is missing"]
    return missing + strange(ours, package) + unlicensed(heads, licences)


def unlicensed(heads: dict[str, bytes], licences: list[str]) -> list[str]:
    """Files of others, by their folder, kind or what they say of themselves, whose licence is not in the wheel."""
    theirs = [
        name
        for name, head in heads.items()
        if VENDORED in Path(name).parts or not _is_our_kind(name) or _RIGHTS.search(head)
    ]
    folders = {Path(licence).parent for licence in licences if Path(licence).parent.name == VENDORED}
    return [
        f"{name} looks like another's: keep it in a folder {VENDORED}/ with its licence, which license-files names"
        for name in theirs
        if Path("src", name).parent not in folders
    ]


def _is_our_kind(name: str) -> bool:
    kind = Path(name).suffix
    return kind in OUR_KINDS or (f"/{PAGE}/" in name and kind in PAGE_KINDS)


# ---------------------------------------------------------------------- trying them


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """A step that must succeed; what it said is shown when it does not."""
    given = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=given, capture_output=True, text=True, check=False,
        timeout=_PATIENCE_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder: Path, python: str | Path) -> Path:
    """A clean one; its interpreter."""
    run(python, "-m", "venv", "--clear", folder)
    return folder / "bin" / "python"


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel, made from the sdist, and the sdist. Nothing is fetched for building but what is pinned."""
    python = environment(folder, sys.executable)
    if installing.install(str(python), "--no-deps", "--require-hashes", "-r", "requirements/dist.txt"):
        raise Failed("what builds a release could not be installed")
    shutil.rmtree(DIST, ignore_errors=True)
    run(python, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    run(python, "-m", "twine", "check", "--strict", *DIST.iterdir())
    [wheel], [sdist] = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def constraints(folder: Path) -> Path:
    """The pinned versions without their hashes, for whoever installs by name."""
    pinned = "".join((ROOT / "requirements" / f"{name}.txt").read_text() for name in ("run", "pythons"))
    path = folder / "constraints.txt"
    path.write_text("\n".join(sorted({line.rstrip(" \\") for line in pinned.splitlines() if "==" in line})))
    return path


def readme_programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def try_readme(python: Path, folder: Path) -> None:
    """Each of its programs, against what is installed."""
    place = run(python, "-c", "import holdfast; print(holdfast.__file__)", cwd=folder)
    if "site-packages" not in place:
        raise Failed(f"not what was installed is imported but {place}")
    for number, text in enumerate(readme_programs(), 1):
        program = folder / f"readme{number}.py"
        program.write_text(text)
        run(python, program, cwd=folder)


def try_conformance(python: Path, folder: Path) -> str:
    """Some topics of the suite on memory and on a folder; pytest's last line."""
    test = folder / "test_conformance.py"
    test.write_text(CONFORMANCE)
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", test, cwd=folder)
    return said.strip().splitlines()[-1]


def tried(name: str, interpreter: Path, wheel: Path, sdist: Path) -> str:
    """What came of both in a clean environment of one Python."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        python = environment(folder / "env", interpreter)
        pinned = ["--only-binary=:all:", "-c", str(constraints(folder))]
        if installing.install(str(python), *pinned, str(wheel)):
            return f"Python {name}: not tried, there are no wheels of the dependencies for it here"
        print(f"Python {name}: the README's programs, then a part of the conformance suite", flush=True)
        run(python, "-m", "pip", "check")
        run(folder / "env" / "bin" / "holdfast", "--help", cwd=folder)
        try_readme(python, folder)
        for_tests = ["pytest", "pytest-asyncio", "pytest-timeout", "hatchling"]
        if installing.install(str(python), *pinned, *for_tests):
            raise Failed("what the conformance suite needs could not be installed")
        passed = try_conformance(python, folder)
        if installing.install(str(python), "--no-deps", "--no-build-isolation", "--force-reinstall", str(sdist)):
            raise Failed(f"{sdist.name} cannot be installed")
        try_readme(python, folder)
        return f"Python {name}: wheel and sdist install, the README runs, conformance: {passed}"


def main() -> int:
    try:
        with tempfile.TemporaryDirectory() as made:
            wheel, sdist = build(Path(made))
        files = tracked()
        if wrong := wrong_in_wheel(wheel, files) + wrong_in_sdist(sdist, files):
            raise Failed("\n".join(wrong))
        there = pythons.found(os.environ)
        results = [tried(name, python, wheel, sdist) for name, python in there.items()]
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    missing = [
        f"Python {name}: not tried, it is not on this machine" for name in pythons.supported() if name not in there
    ]
    print("", f"dist/{wheel.name}", f"dist/{sdist.name}", *results, *missing, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
