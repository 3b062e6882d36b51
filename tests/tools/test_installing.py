"""The set-up: uv is told what pip is configured with, pip does it where uv does not, and each part is made once."""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT


@pytest.fixture
def installing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import installing

    return installing


def setup_tool(root: Path) -> dict[str, Any]:
    """The functions of tools/setup.py, for a project in another folder."""
    names = runpy.run_path(str(ROOT / "tools" / "setup.py"), run_name="setup")
    names["main"].__globals__.update(ROOT=root, VENV=root / ".venv", STAMP=root / ".venv" / "holdfast-setup")
    return names


# ---------------------------------------------------------------------- pip's configuration


def test_uv_is_told_what_pip_is_configured_with(installing: ModuleType) -> None:
    listed = """\
global.cert='/etc/ca.crt'
global.extra-index-url='file:///srv/one\\nhttps://user:word@two.example/simple'
global.find-links='/srv/old'
global.trusted-host='two.example'
install.no-index='false'
freeze.timeout='10'
:env:.find-links='/srv/wheels /srv/more'
:env:.index-url='https://index.example/simple'
"""
    assert installing.uv_settings(installing.pip_settings(listed)) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "UV_INDEX": "file:///srv/one https://user:word@two.example/simple",
        "UV_FIND_LINKS": "/srv/wheels,/srv/more",
        "UV_INSECURE_HOST": "two.example",
        "SSL_CERT_FILE": "/etc/ca.crt",
    }


def test_what_pip_is_told_by_files_and_variables_arrives(installing: ModuleType, tmp_path: Path) -> None:
    """A real pip is asked."""
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nextra-index-url = file:///srv/one\n    file:///srv/two\n")
    given = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    given |= {"PIP_CONFIG_FILE": str(config), "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}
    told = installing.uv_environment(given)
    assert (told["UV_INDEX"], told["UV_NO_INDEX"]) == ("file:///srv/one file:///srv/two", "1")
    assert installing.uv_environment({**given, "UV_INDEX": "file:///mine"})["UV_INDEX"] == "file:///mine"


# ---------------------------------------------------------------------- uv, or pip


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A package in a folder, and what asks for it by its hash."""
    path = tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl"
    path.parent.mkdir()
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", f"tiny.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "tiny.txt").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")
    return path


def installed(
    installing: ModuleType, monkeypatch: pytest.MonkeyPatch, wheel: Path, uv: Path | None
) -> tuple[int, Path]:
    """tiny, into an environment of its own, found only where pip is told to look; the exit code and tiny's file."""
    place = wheel.parent.parent / "env"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=50)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(wheel.parent.parent / "cache"))
    monkeypatch.setattr(installing, "UV", uv or wheel.parent / "none")
    pinned = str(wheel.parent.parent / "tiny.txt")
    code = installing.install(str(place / "bin" / "python"), "--no-deps", "--require-hashes", "-r", pinned)
    [site] = place.glob("lib/python3.*/site-packages")
    return code, site / "tiny.py"


def test_uv_installs_from_where_pip_would(
    installing: ModuleType, monkeypatch: pytest.MonkeyPatch, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if not installing.UV.exists():
        pytest.skip("there is no uv in this environment: pip has installed it")
    code, file = installed(installing, monkeypatch, wheel, installing.UV)
    assert (code, file.exists()) == (0, True)
    assert "pip tries" not in capfd.readouterr().out


@pytest.mark.parametrize("broken", [True, False])
def test_pip_installs_where_uv_does_not_and_says_so(
    broken: bool,
    installing: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    wheel: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    uv = wheel.parent.parent / "uv"
    uv.write_text("#!/bin/sh\nexit 2\n")
    uv.chmod(0o755)
    code, file = installed(installing, monkeypatch, wheel, uv if broken else None)
    assert (code, file.exists()) == (0, True)
    assert ("now pip tries" if broken else "there is no uv") in capfd.readouterr().out


def test_without_a_wheel_of_uv_there_is_none(
    installing: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of another version, from before, is not used in its place."""
    (tmp_path / "uv.txt").write_text(f"no-such-package==1 --hash=sha256:{'0' * 64}\n")
    (tmp_path / "uv").touch()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(installing, "PINNED_UV", str(tmp_path / "uv.txt"))
    monkeypatch.setattr(installing, "UV", tmp_path / "uv")
    installing.get_uv()
    assert not (tmp_path / "uv").exists()


def test_addresses_of_indexes_are_not_shown(
    installing: ModuleType, monkeypatch: pytest.MonkeyPatch, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They may hold a password; uv gets them by its environment."""
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://ada:secret@index.invalid/simple")
    uv = wheel.parent.parent / "uv"
    uv.write_text('#!/bin/sh\ntest "$UV_INDEX" = https://ada:secret@index.invalid/simple\n')
    uv.chmod(0o755)
    assert installed(installing, monkeypatch, wheel, uv)[0] == 0
    assert "secret" not in capfd.readouterr().out


# ---------------------------------------------------------------------- parts


def test_a_part_is_there_until_what_it_is_made_from_changes(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / "requirements").mkdir()
    for name in ("requirements/uv.txt", "requirements/run.txt", "requirements/dev.txt", "pyproject.toml"):
        (tmp_path / name).write_text("1")
    tool = setup_tool(tmp_path)
    is_there, fingerprint, stamp = tool["is_there"], tool["fingerprint"], tmp_path / ".venv" / "holdfast-setup"
    assert not is_there("run")
    stamp.write_text(fingerprint("run"))
    assert is_there("run")
    assert not is_there("dev")
    stamp.write_text(fingerprint("dev"))
    assert is_there("run")
    assert is_there("dev")
    (tmp_path / "requirements" / "dev.txt").write_text("2")
    assert not is_there("dev")


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?(==[^ ]+)", text, re.M))


@pytest.mark.parametrize("part", ["run", "pythons", "dist"])
def test_what_is_pinned_twice_has_one_version(part: str) -> None:
    dev = pins("dev")
    assert {name: pin for name, pin in pins(part).items() if dev.get(name, pin) != pin} == {}


def test_what_tests_need_holds_what_runs() -> None:
    assert pins("run").keys() <= pins("dev").keys()
