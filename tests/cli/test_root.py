"""The top of the command line: help, version, errors, what is imported when."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import holdfast
from holdfast.cli.root import PARTS, app
from tests.cli_runner import Cli

CONTRACT = [
    "demo",
    "install",
    "grants",
    "uninstall",
    "doctor",
    "scrub",
    "maintain",
    "recover",
    "backup",
    "restore",
    "move",
    "queue",
    "message",
    "dead",
    "archive",
    "schedule",
    "worker",
    "serve",
    "top",
    "pipeline",
    "bench",
]
COMMANDS = {
    "queue": ["create", "list", "show", "configure", "metrics", "purge", "delete", "pause", "resume"],
    "message": ["send", "read", "show", "complete", "fail", "cancel"],
    "dead": ["list", "replay", "delete", "purge"],
    "archive": ["list", "replay", "purge"],
    "schedule": ["list", "show", "put", "pause", "resume", "trigger", "backfill", "preview", "delete", "tick"],
    "worker": ["run"],
    "pipeline": [
        *("ingest", "process", "lake", "table", "report", "replay", "consumers", "release", "compact", "convert"),
    ],
    "bench": ["queue", "store", "latency", "compare"],
}
ALONE = [name for name in CONTRACT if name not in COMMANDS]


def help_of(*names: str) -> str:
    result = CliRunner().invoke(app, [*names, "--help"])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


def test_every_command_of_the_contract_is_there() -> None:
    assert set(PARTS) == set(CONTRACT)
    for group, names in COMMANDS.items():
        text = help_of(group)
        assert all(f"  {name} " in text for name in names), group


@pytest.mark.parametrize(
    "names", [*((name,) for name in ALONE), *((group, name) for group, names in COMMANDS.items() for name in names)]
)
def test_every_command_takes_the_common_options(names: tuple[str, ...]) -> None:
    text = help_of(*names)
    wanted = {"--url", "--json", "--verbose"}
    if names == ("bench", "compare"):  # it chooses its stores itself
        wanted.remove("--url")
    assert wanted <= set(text.replace(",", " ").split()), names


def test_help_of_the_root_imports_no_command() -> None:
    heavy = ["rich", "asyncio", "msgspec", "pydantic", "pyarrow", "apsw", "holdfast.broker", "holdfast.cli.queue"]
    code = (
        "import sys\n"
        "from holdfast.cli import main\n"
        "sys.argv = ['holdfast', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr.strip() == "[]"


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.output == f"holdfast {holdfast.__version__}\n"


def test_no_arguments_show_the_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "Usage" in result.output
    assert result.exit_code == 2


@pytest.mark.parametrize(("given", "meant"), [("qeue", "queue"), ("docter", "doctor")])
def test_a_mistyped_command_is_a_usage_error_with_a_hint(given: str, meant: str) -> None:
    result = CliRunner().invoke(app, [given])
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'" in result.output


def test_unknown_option_is_a_usage_error(cli: Cli) -> None:
    assert "--nope" in cli.error("queue", "list", "--nope", code=2)


def test_verbose_shows_the_traceback_and_the_log(cli: Cli) -> None:
    result = cli("queue", "show", "nope", "--verbose", code=1)
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("holdfast: there is no queue 'nope'\n")


def test_verbose_wins_over_the_environment_and_leaves_no_trace(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "error")
    logger = logging.getLogger("holdfast")
    before = (logger.level, list(logger.handlers))
    cli("queue", "create", "q")
    result = cli("queue", "configure", "q", "lease=5", "--verbose")
    assert "options changed: lease" in result.stderr
    assert "options changed" not in cli("queue", "configure", "q", "lease=6").stderr
    assert (logger.level, list(logger.handlers)) == before
    assert os.environ["HOLDFAST_LOG_LEVEL"] == "error"


def test_a_bad_url_is_one_line(cli: Cli) -> None:
    error = cli.error("queue", "list", "--url", "ftp://user:secret@host/x")
    assert error.startswith("holdfast: ")
    assert "secret" not in error
    assert error.count("\n") == 1


def test_bad_configuration_is_one_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.yaml").write_text("ulr: memory://\n")
    assert "did you mean 'url'" in cli.error("queue", "list")


def test_the_url_comes_from_environment_and_file(tmp_path: Path) -> None:
    def queues(*arguments: str, **env: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from holdfast.cli import main; main()", *arguments, "--json"],
            cwd=tmp_path,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        answer = json.loads(done.stdout)
        return [row["name"] for row in answer] if isinstance(answer, list) else []

    queues("queue", "create", "default")
    assert (tmp_path / "holdfast-data").is_dir()
    (tmp_path / "holdfast.yaml").write_text("url: ./from-file\n")
    queues("queue", "create", "file")
    environment = {"HOLDFAST_URL": str(tmp_path / "from-environment")}
    queues("queue", "create", "environment", **environment)
    assert queues("queue", "list") == ["file"]
    assert queues("queue", "list", **environment) == ["environment"]
    assert queues("queue", "list", "--url", "./holdfast-data", **environment) == ["default"]


def test_a_broken_pipe_is_no_traceback(cli: Cli) -> None:
    cli("message", "send", "q", "-", input="".join(f"{number}\n" for number in range(3000)))
    command = f"{sys.executable} -c 'from holdfast.cli import main; main()' message read q --count 3000 --url {cli.url}"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.startswith("id")
    assert "Traceback" not in done.stderr


def test_groups_are_typer_apps() -> None:
    """What `get_command` returns can be built for every part, so that completion works too."""
    group = typer.main.get_group(app)
    context = typer.Context(group)
    assert all(group.get_command(context, name) is not None for name in group.list_commands(context))
    assert group.get_command(context, "nope") is None


def test_a_person_sees_a_bar_and_a_program_does_not(cli: Cli, tmp_path: Path) -> None:
    """The bar is on stderr, and only when stderr is a terminal."""
    lines = tmp_path / "many.jsonl"
    lines.write_text("1\n" * 50)
    command = [sys.executable, "-c", "from holdfast.cli import main; main()"]
    command += ["message", "send", "q", f"@{lines}", "--batch-size", "10", "--url", cli.url]
    master, slave = pty.openpty()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, timeout=30, check=True)
        os.close(slave)
        seen = os.read(master, 100_000).decode()
    finally:
        os.close(master)
    assert "sending to q" in seen
    assert done.stdout.decode() == "sent 50 messages to q\n"
    piped = subprocess.run(command, capture_output=True, timeout=30, check=True)
    assert piped.stderr == b""


def test_python_m_holdfast_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"holdfast {holdfast.__version__}\n"), done.stderr


def test_what_the_terminal_cannot_show_is_written_otherwise(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data")
    cli("queue", "create", "q", "max_attempts=1")
    cli.kill("q", '"\u00e9"')
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "dead", "list", "q", "--url", cli.url],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\\xe9" in done.stdout
