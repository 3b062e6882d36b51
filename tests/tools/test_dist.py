"""What `make dist` refuses: files that do not belong in a release, and files of others without their licence."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT


@pytest.fixture
def dist(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import dist

    return dist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist of this very tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=50)
    return folder


def test_sdist_holds_what_it_needs_and_nothing_else(dist: ModuleType, built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    assert dist.wrong_in_sdist(sdist, package_files()) == []


def test_wheel_holds_the_packages_and_all_licences(dist: ModuleType, built: Path) -> None:
    [wheel] = built.glob("*.whl")
    assert dist.wrong_in_wheel(wheel, package_files()) == []


def package_files() -> set[str]:
    """As they lie there: one that is not in version control yet is no fault of the tree's."""
    source = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    beside = ["pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"]
    return {*(str(path.relative_to(ROOT)) for path in source), *beside}


def wheel_of(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "one-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


LICENSE = "one-1.dist-info/licenses/LICENSE"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one/server/chart.js", ""),
        ("one/server/page/static/letters.woff2", ""),
        ("one/server/vendored/chart.py", ""),
        ("one/copied.py", "# Copyright 2020 somebody"),
        ("one/server/page/static/chart.js", "/*! @license MIT */"),
    ],
    ids=["kind", "kind, of the page", "folder", "rights", "rights, in the page"],
)
def test_files_of_others_need_their_licence(dist: ModuleType, tmp_path: Path, name: str, text: str) -> None:
    wheel = wheel_of(tmp_path, {LICENSE: "", name: text})
    [wrong] = dist.wrong_in_wheel(wheel, {f"src/{name}"})
    assert wrong.startswith(f"{name} looks like another's")


def test_vendored_files_with_their_licence_are_fine(dist: ModuleType, tmp_path: Path) -> None:
    name = "one/server/vendored/chart.js"
    theirs = "one-1.dist-info/licenses/src/one/server/vendored/LICENSE.chart"
    assert dist.wrong_in_wheel(wheel_of(tmp_path, {LICENSE: "", theirs: "", name: ""}), {f"src/{name}"}) == []


def test_strange_missing_and_unlicensed_files_are_named(dist: ModuleType, tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path, {"one/left.py": ""})
    assert dist.wrong_in_wheel(wheel, {"src/one/here.py"}) == [
        "LICENSE is missing",
        "one/left.py should not be in it",
        "one/here.py is missing",
    ]


def test_constraints_are_the_pins_without_hashes(dist: ModuleType, tmp_path: Path) -> None:
    lines = dist.constraints(tmp_path).read_text().splitlines()
    assert any(line.startswith("msgspec==") for line in lines)
    assert any(line.startswith("pytest==") for line in lines)
    assert not any("hash" in line or line.endswith("\\") for line in lines)


def test_programs_of_the_readme_are_found(dist: ModuleType) -> None:
    assert len(dist.readme_programs()) >= 3


def test_a_step_that_fails_is_shown(dist: ModuleType) -> None:
    with pytest.raises(dist.Failed, match="this is wrong"):
        dist.run(sys.executable, "-c", "raise SystemExit('this is wrong')")
