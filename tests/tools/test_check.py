"""What `make check` makes of an audit, and of a program that is not there."""

import importlib.util

import pytest

from tests import ROOT

_spec = importlib.util.spec_from_file_location("check", ROOT / "tools" / "check.py")
check = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check)


@pytest.mark.parametrize(
    ("code", "said", "state"),
    [
        (0, "No known vulnerabilities found", "ok"),
        (1, "Found 2 known vulnerabilities in 1 package\nName Version ID", "FAILED"),
        (1, "requests.exceptions.ConnectionError: Max retries exceeded", "skipped"),
        (0, "No known vulnerabilities found\nx  Dependency not found and could not be audited: x (1)", "skipped"),
    ],
)
def test_only_what_an_audit_found_fails(code, said, state):
    told, shown = check.judged_audit(code, said)
    assert told.startswith(state)
    assert bool(shown) == (state == "FAILED")


def test_what_is_not_installed_is_skipped_with_a_sentence(capsys):
    assert check.passes("audit", ["no-such-program"])
    assert "skipped: no-such-program is not installed here" in capsys.readouterr().out


def test_a_check_that_fails_is_shown(capsys):
    assert not check.passes("style", ["python", "-c", "raise SystemExit('this is wrong')"])
    assert "this is wrong" in capsys.readouterr().out


def test_security_and_audit_are_among_the_checks():
    assert {"security", "audit"} <= check.CHECKS.keys()
    assert (ROOT / "SECURITY.md").read_text().startswith("# Security")


def test_the_documentation_is_built_strictly():
    assert "--strict" in check.CHECKS["docs"]
