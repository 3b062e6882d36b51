"""The documentation as a site: what `make docs` refuses, and which links it makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import ROOT

pytest.importorskip("mkdocs", reason="the site is built where requirements/dev.txt is installed")


def build(folder: Path, pages: dict[str, str], nav: list[str]) -> subprocess.CompletedProcess[str]:
    """Build a small site under the settings of ours, but for its pages."""
    for name, text in pages.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text)
    settings = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": "docs",
        "site_dir": "site",
        "hooks": [str(ROOT / "tools" / "site_pages.py")],
        "plugins": ["search"],
        "not_in_nav": "/project/",
        "nav": nav,
    }
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(folder / "mkdocs.yml")]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=50, check=False)


def test_a_sound_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pages = {
        "index.md": f"# Home\n\n[there](sub/page.md#a-part) [about]({ROOT}/README.md) [code]({ROOT}/Makefile)\n",
        "sub/page.md": "# Page\n\n```python no-run\n[no link](nowhere.md)\n```\n\n## A part\n\n[home](../index.md)\n",
    }
    done = build(tmp_path, pages, ["index.md", "sub/page.md"])
    assert done.returncode == 0, done.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert 'href="sub/page.html#a-part"' in home
    assert 'href="project/about.html"' in home
    assert "Makefile" not in home
    assert 'src="http' not in home
    assert "fonts.googleapis" not in home


@pytest.mark.parametrize(
    ("text", "nav", "said"),
    [
        ("[gone](gone.md)", ["index.md"], "gone.md"),
        ("[gone](#gone)", ["index.md"], "#gone"),
        ("all is well", ["index.md", "gone.md"], "gone.md"),
        ("all is well", [], "not included in the \"nav\""),
    ],
    ids=["dead link", "dead anchor", "missing page", "page missing from the navigation"],
)  # fmt: skip
def test_a_strict_build_refuses(tmp_path: Path, text: str, nav: list[str], said: str) -> None:
    pages = {"index.md": f"# Home\n\n{text}\n", "other.md": "# Other\n"}
    done = build(tmp_path, pages, [*nav, "other.md"])
    assert done.returncode != 0
    assert said in done.stderr
