"""The project keeps its own rules: layout, sizes, names, the README's code, the wheel."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import holdfast
from tests import ROOT

PACKAGE = ROOT / "src" / "holdfast"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py"))
LONGEST_FILE = 560  # a file that tells one story may be long; one that keeps growing tells two
LONGEST_FUNCTION = 45
SUPPRESSED = re.compile(r"#\s*(noqa\b|type: ignore)")
REASONED = re.compile(r"#\s*(noqa: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*|type: ignore\[[\w, -]+\])[-#( ]+\w")
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}
SUITES = {"conformance", "protocol", "suites"}  # one suite on every store; a model that knows no module
TOPICS = {  # what no module has to itself
    *("constants", "docs", "examples", "holdfast", "project", "runbook", "typing", "versions"),
    *("backups", "bench", "connect", "internals", "narrow_stores", "other_stores", "pipeline_cli", "pipelines", "sql"),
    *("behind", "crashes", "histories", "processes", "purging", "rights", "seeded", "slices", "state_machines"),
    *("browser", "hostile_input", "lent_pool", "lost_heads", "secrets", "weight"),
}


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in [*SOURCES, *(ROOT / "tools").glob("*.py")]}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    long = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_no_module_has_a_vague_name() -> None:
    assert [path for path in SOURCES if path.stem in VAGUE] == []


def test_tests_lie_where_their_modules_do() -> None:
    """tests/worker/test_outage.py is of worker/outage.py; test_outage_….py is of one side of it."""
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name not in SUITES]
    strays = [str(path.relative_to(ROOT)) for path in tests if not _is_of_a_module(path) and not _is_of_a_topic(path)]
    assert strays == [], "no module beside which it would lie: move it, or name its topic in TOPICS"


def _is_of_a_module(test: Path) -> bool:
    folder = test.parent.relative_to(ROOT / "tests")
    name = test.stem.removeprefix("test_")
    homes = [base / folder for base in (PACKAGE, ROOT, ROOT / "tests")]
    modules = {path.stem for home in homes for path in home.glob("*") if path.suffix == ".py" or path.is_dir()}
    whole = any(home.with_suffix(".py").exists() for home in homes)  # stores/batches/: a folder for one module
    return whole or any(name == module or name.startswith(f"{module}_") for module in modules)


def _is_of_a_topic(test: Path) -> bool:
    return any(test.stem.removeprefix("test_").startswith(topic) for topic in TOPICS)


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT)) for path in SOURCES if path.read_text().strip() and not _docstring(path.read_text())
    ]
    assert silent == []


def _docstring(source: str) -> str | None:
    return ast.get_docstring(ast.parse(source))


def test_every_suppression_carries_its_reason() -> None:
    """`# noqa: X - why` and `# type: ignore[x]  # why`."""
    bare = []
    for path in SOURCES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if SUPPRESSED.search(line) and not REASONED.search(line):
                bare.append(f"{path.relative_to(ROOT)}:{number}")
    assert bare == []


def test_all_is_exact() -> None:
    """`__all__`, the names type checkers see, and the names that load when used are the same."""
    assert list(holdfast.__all__) == sorted(holdfast.__all__)
    assert [name for name in holdfast.__all__ if not hasattr(holdfast, name)] == []
    seen = {"__version__"}
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            seen |= {alias.asname or alias.name for one in ast.walk(node) for alias in getattr(one, "names", [])}
    assert seen == set(holdfast.__all__)
    assert set(dir(holdfast)) == set(holdfast.__all__)


CONTRACT = {
    *("connect", "sync", "App", "Context", "Delivery", "Queue", "Broker", "Worker"),
    *("Message", "Record", "Retry", "Dead", "Exponential", "Fixed", "Linear", "NoRetry"),
    *(
        "HoldfastError",
        "ConfigError",
        "CodecError",
        "QueueError",
        "QueueNotFound",
        "QueueExists",
        "QueueFull",
        "QueueNotEmpty",
    ),
    *("MessageError", "MessageNotFound", "MessageTooLarge", "InvalidPriority", "LeaseLost"),
    *("StoreError", "Unavailable", "Fenced", "UnsafeStore", "UnknownOutcome"),
}


def test_public_names_are_there() -> None:
    assert set(holdfast.__all__) >= CONTRACT


def test_importing_is_light() -> None:
    """pyarrow, Rich and the optional parts load when they are used."""
    heavy = ["pyarrow", "rich", "typer", "yaml", "obstore", "pyspark", "pydantic", "apsw"]
    code = f"import sys, holdfast; print([name for name in {heavy} if name in sys.modules])"
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


def readme_blocks() -> list[str]:
    readme = ROOT / "README.md"
    return re.findall(r"^```python\n(.*?)^```", readme.read_text(), re.M | re.S) if readme.exists() else []


@pytest.mark.parametrize("block", readme_blocks())
def test_readme_code_runs(block: str, tmp_path: Path) -> None:
    """Every ```python block of the README is a program of its own."""
    program = tmp_path / "readme.py"
    program.write_text(block)
    done = run(sys.executable, program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_pinned_requirements_name_no_place() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--index" not in text


def test_wheel_holds_the_package_and_runs_alone(tmp_path: Path) -> None:
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "holdfast/py.typed" in names
    pages = [f"holdfast/server/page/{each}" for each in ("static/style.css", "static/ui.js", "templates/frame.html")]
    assert set(pages) <= set(names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"holdfast", "pyspark_holdfast"}

    target = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    installed = run(sys.executable, *install)
    assert installed.returncode == 0, installed.stderr
    code = "import holdfast; print(holdfast.__file__)"
    assert str(target) in run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(target)).stdout
    assert "Usage: holdfast" in run(target / "bin" / "holdfast", "--help", cwd=tmp_path, PYTHONPATH=str(target)).stdout


def test_set_up_refuses_an_old_python_with_a_sentence(tmp_path: Path) -> None:
    """The set-up program is run by a Python that claims to be 3.9, with no other on the path."""
    code = (
        "import runpy, sys\n"
        "class Old(tuple):\n    major, minor = 3, 9\n"
        "sys.argv = ['setup.py']\n"
        f"module = runpy.run_path({str(ROOT / 'tools' / 'setup.py')!r}, run_name='setup')\n"
        "module['interpreter'].__globals__['is_new_enough'] = lambda python: False\n"
        "sys.version_info = Old((3, 9, 2))\n"
        "module['interpreter']()\n"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "python3 is 3.9" in done.stderr
