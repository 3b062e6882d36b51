"""The pictures of the page in the documentation: all of them, in their widths, shown somewhere, and not too heavy."""

from __future__ import annotations

import struct

import pytest

from tests import ROOT
from tests.server.page.make_shots import FOLDER, PATHS, THEMES, WIDTHS

HEAVIEST_BYTES = 200_000


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PATHS)
def test_there_is_a_picture(name: str, theme: str, width: int) -> None:
    data = (FOLDER / f"{name}-{width}-{theme}.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">I", data[16:20]) == (width,)
    assert len(data) < HEAVIEST_BYTES


def test_every_picture_is_shown() -> None:
    guide, readme = (ROOT / "docs" / "guide" / "page.md").read_text(), (ROOT / "README.md").read_text()
    for path in FOLDER.iterdir():
        assert f"../images/page/{path.name}" in guide, path.name
    assert "docs/images/page/overview-1024-light.png" in readme
