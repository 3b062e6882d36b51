"""What a call to enqueue says about dedup keys is checked before any I/O."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import ConfigError
from holdfast.once import Once
from holdfast.stores.capabilities import Capabilities
from holdfast.stores.records import Envelope


@pytest.mark.parametrize(
    "how", [{}, {"report": True}, {"dedup": "alive"}, {"dedup": "waiting", "replace": True, "report": True}]
)
def test_what_makes_sense_passes(how: dict[str, Any]) -> None:
    Once(**how).check(Capabilities())
    Once(**how).check_keys([Envelope(b"", dedup_key="k")])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"report": 1}, "report: True or False, not 1"),
        ({"replace": "yes"}, "replace: True or False"),
        ({"replace": True}, "is for dedup="),
        ({"dedup": "alife"}, "did you mean 'alive'"),
        ({"dedup": None}, "dedup: there is no None"),
    ],
)
def test_what_makes_none_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Once(**how).check(Capabilities())


def test_a_store_that_cannot_change_messages_cannot_replace_them() -> None:
    with pytest.raises(ConfigError, match="cannot change a message"):
        Once(dedup="alive", replace=True).check(Capabilities(changes_messages=False))
    Once(dedup="alive").check(Capabilities(changes_messages=False))


def test_a_way_needs_a_key_of_every_message() -> None:
    Once().check_keys([Envelope(b"")])
    with pytest.raises(ConfigError, match='dedup="alive" needs a dedup_key'):
        Once(dedup="alive").check_keys([Envelope(b"", dedup_key="k"), Envelope(b"")])
