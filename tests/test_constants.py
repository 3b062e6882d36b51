"""Every number in the package has a name with its unit and a line with its reason, and one value in the whole tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT

PACKAGE = ROOT / "src" / "holdfast"
NAME = re.compile(r"_?[A-Z][A-Z0-9_]+")
TIMES = ("S", "DAYS")  # what a float may be
# What is still to be named anew, by engine: how many constants break a rule. These numbers only go down.
LEFT = {"stores/log": 166, "stores/nats": 6}
MOST = 241  # constants outside of these engines, formats and limits included


class Number(NamedTuple):
    """A numeric constant of a module."""

    path: Path
    name: str
    value: str
    is_float: bool
    has_reason: bool

    @property
    def engine(self) -> str | None:
        return next((name for name in LEFT if self.path.is_relative_to(PACKAGE / name)), None)

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}: {self.name} = {self.value}"


def numbers() -> Iterator[Number]:
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        lines = source.splitlines()
        for node in ast.parse(source).body:
            if path.name.endswith("_pb2.py") or not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and NAME.fullmatch(target.id) and is_number(node.value):
                has_reason = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].startswith("#")
                floats = any(
                    isinstance(part, ast.Constant) and isinstance(part.value, float) for part in ast.walk(node)
                )
                yield Number(path, target.id, ast.unparse(node.value or node), floats, has_reason)


def is_number(value: ast.expr | None) -> bool:
    """A literal, or arithmetic with numbers and other constants."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    if isinstance(value, ast.Name):
        return NAME.fullmatch(value.id) is not None
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


NUMBERS = [each for each in numbers() if not each.value.isidentifier()]


def is_well_named(number: Number) -> bool:
    """A float is a time and says so; the line of an integer says what it counts."""
    return number.has_reason and (not number.is_float or number.name.rpartition("_")[2] in TIMES)


def test_names_say_the_unit_and_lines_the_reason() -> None:
    assert [str(each) for each in NUMBERS if each.engine is None and not is_well_named(each)] == []


def test_a_unit_of_time_is_always_the_same() -> None:
    """Seconds are `_S`; nothing is counted in `_SECONDS`, `_MS` or `_MINUTES`."""
    other = ("SECONDS", "SECS", "SEC", "MS", "MILLISECONDS", "MINUTES", "HOURS")
    assert [str(each) for each in NUMBERS if each.engine is None and each.name.rpartition("_")[2] in other] == []


def test_no_name_has_two_values() -> None:
    values: dict[str, set[str]] = {}
    for each in NUMBERS:
        if each.engine is None:
            values.setdefault(each.name.lstrip("_"), set()).add(each.value)
    assert {name: sorted(found) for name, found in values.items() if len(found) > 1} == {}


@pytest.mark.parametrize("engine", LEFT)
def test_engines_get_better(engine: str) -> None:
    values: dict[str, set[str]] = {}
    for each in NUMBERS:
        values.setdefault(each.name.lstrip("_"), set()).add(each.value)
    wrong = [
        each
        for each in NUMBERS
        if each.engine == engine and (not is_well_named(each) or len(values[each.name.lstrip("_")]) > 1)
    ]
    assert len(wrong) <= LEFT[engine], "\n".join(map(str, wrong))


def test_there_are_not_more_of_them() -> None:
    assert len([each for each in NUMBERS if each.engine is None]) <= MOST
