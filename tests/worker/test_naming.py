"""MODULE:NAME: what is found, and what is said when it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.worker.naming import named


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_names_within_names_are_found(folder: Path) -> None:
    (folder / "naming_shop.py").write_text("class Orders:\n    limit = 5\n")
    assert named("naming_shop:Orders.limit") == 5


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("naming_nowhere:app", "there is no module 'naming_nowhere' here, ask Ada"),
        ("naming_nowhere.tasks:app", "there is no module 'naming_nowhere.tasks' here"),
        ("naming_mail_app:app", "module 'naming_mail_app' needs 'naming_mail', which is not installed"),
        ("naming_empty:app", "the module has no 'app'"),
        ("naming_empty:", "write MODULE:THING"),
        (":app", "write MODULE:THING"),
        ("naming_empty", "write MODULE:THING"),
    ],
)
def test_what_cannot_be_found_is_a_clear_sentence(folder: Path, spec: str, sentence: str) -> None:
    (folder / "naming_mail_app.py").write_text("import naming_mail\n")  # its own name begins with what it lacks
    (folder / "naming_empty.py").write_text("")
    with pytest.raises(ConfigError, match=sentence):
        named(spec, shape="MODULE:THING", absent=", ask Ada")
