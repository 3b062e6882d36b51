"""`import holdfast`: exact names, nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

HEAVY = ("pyarrow", "apsw", "yaml", "rich", "typer", "pydantic", "asyncio", "obstore", "pyspark")


def test_every_public_name_is_there():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    assert dir(holdfast) == sorted(holdfast.__all__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(holdfast.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body for alias in node.names}
    assert seen == set(holdfast.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = holdfast.nothing


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_import_loads_nothing_heavy():
    code = f"import sys, holdfast; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert run(code).strip() == "[]"


def test_a_broker_loads_nothing_it_does_not_use():
    heavy = tuple(name for name in HEAVY if name != "asyncio")
    code = f"import sys, holdfast; holdfast.connect; holdfast.Queue; print([n for n in {heavy!r} if n in sys.modules])"
    assert run(code).strip() == "[]"


def test_the_error_tree_is_public():
    from holdfast import errors

    public = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert public <= set(holdfast.__all__)
