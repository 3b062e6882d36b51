"""The container file: what it copies is there, what it runs is understood, and it is no root."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from holdfast import config
from holdfast.cli.root import app
from holdfast.server.tokens import Tokens
from tests import ROOT
from tests.servers.serving import ServerThread

FOLDER = ROOT / "deploy" / "container"


def steps() -> list[tuple[str, str]]:
    """Instructions with their arguments, lines put together."""
    text = re.sub(r"\\\n\s*", " ", (FOLDER / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def last(name: str) -> str:
    return [rest for step, rest in steps() if step == name][-1]


def test_what_it_copies_is_there() -> None:
    copied = [rest.split() for step, rest in steps() if step == "COPY" and not rest.startswith("--from")]
    sources = [source for words in copied for source in words[:-1]]
    assert {"pyproject.toml", "src", "LICENSE", "README.md"} == set(sources)
    for source in sources:
        assert (ROOT / source).exists()


def test_the_extras_are_ours() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = last("ARG").removeprefix("EXTRAS=").split(",")
    assert set(wanted) == set(extras) & set(wanted)
    assert "server" in wanted


def test_it_runs_as_nobody_special_and_keeps_its_data_apart() -> None:
    assert last("USER") == "10001"
    assert last("VOLUME") == "/data"
    assert last("STOPSIGNAL") == "SIGTERM"
    said = dict(word.split("=", 1) for word in shlex.split(last("ENV")))
    assert config.load(env={"HOLDFAST_URL": said["HOLDFAST_URL"]}).url == "file:///data/store"


def understood(words: list[str]) -> None:
    """Every option of a command is one that it has."""
    group = [word for word in words if not word.startswith("-")][: 2 if words[0] == "worker" else 1]
    helped = CliRunner().invoke(app, [*group, "--help"]).output
    for word in words:
        if word.startswith("--"):
            assert word in helped, word


def test_its_command_and_those_of_compose_are_understood() -> None:
    assert json.loads(last("ENTRYPOINT")) == ["holdfast"]
    understood(json.loads(last("CMD")))
    services = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]
    for service in services.values():
        understood(service["command"])
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).resolve().exists()
    line = services["serve"]["environment"]["HOLDFAST_SERVE_TOKENS"]
    Tokens([re.sub(r"\$\{[^}]*\}", "8f0c2a5e9b7d41c3", line)])
    assert (FOLDER / services["worker"]["volumes"][0].split(":")[0] / "tasks.py").resolve().exists()


def test_the_health_check_tells_a_server_that_answers_from_none() -> None:
    _, program = json.loads(last("HEALTHCHECK").partition("CMD ")[2])[1:]
    with ServerThread("memory://") as server:
        here = program.replace("http://127.0.0.1:8731", server.address)
        assert subprocess.run([sys.executable, "-c", here], timeout=30, check=False).returncode == 0
    gone = subprocess.run([sys.executable, "-c", here], timeout=30, check=False, capture_output=True)
    assert gone.returncode != 0


@pytest.mark.skipif(not os.environ.get("HOLDFAST_FULL") or shutil.which("docker") is None, reason="needs a daemon")
@pytest.mark.timeout(900)
def test_the_image_is_built_and_knows_its_version(tmp_path: Path) -> None:
    if subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode:
        pytest.skip("no daemon answers")
    build = ["docker", "build", "-q", "-f", str(FOLDER / "Containerfile"), "--build-arg", "EXTRAS=server", str(ROOT)]
    image = subprocess.run(build, capture_output=True, text=True, timeout=800, check=True).stdout.strip()
    shown = subprocess.run(["docker", "run", "--rm", image, "--version"], capture_output=True, text=True, timeout=60)
    assert shown.stdout.startswith("holdfast ")
