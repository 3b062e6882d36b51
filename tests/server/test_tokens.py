"""Tokens, roles, patterns of queues."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.server.tokens import Holder, Tokens

LINES = ["# comment", "", "web:work:web-token-0123456789", "ops:operate:mail-*,jobs:ops:token-0123456789"]


def test_lines_are_read() -> None:
    tokens = Tokens(LINES)
    assert tokens.find("web-token-0123456789") == Holder("web", "work")
    ops = tokens.find("ops:token-0123456789")
    assert ops == Holder("ops", "operate", ("mail-*", "jobs"))
    assert [ops.reaches(name) for name in ("mail-a", "jobs", "jobs2", "other")] == [True, True, False, False]
    assert tokens.find("web-token-012345678") is None
    assert tokens.find("") is None
    assert not Tokens()


def test_a_role_may_what_those_before_it_may() -> None:
    assert [Holder("a", "operate").may(role) for role in ("read", "work", "operate", "admin")] == [
        *(True, True, True, False)
    ]


@pytest.mark.parametrize(
    "line", ["canary", "a:work", ":work:canary-canary-canary", "a:boss:canary-canary-canary", "a:work:canary"]
)
def test_a_bad_line_is_named_and_never_shown(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2") as caught:
        Tokens(["# first", line])
    assert "canary" not in str(caught.value)


def test_no_token_is_kept() -> None:
    assert "0123456789" not in repr(vars(Tokens(LINES)))
