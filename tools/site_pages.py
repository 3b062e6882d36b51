"""What the documentation site adds to MkDocs: pages that lie outside docs/, and links between files as they lie in the
repository. MkDocs loads this file (`hooks` in mkdocs.yml) and calls its functions by their names."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")
RESULTS = "benchmarks/results/*.md"
FENCE = re.compile(r"(^(?:```|~~~~?).*?^(?:```|~~~~?)[^\n]*$)", re.M | re.S)
NOTE = re.compile(r"^```(\w+) [^\n]*$", re.M)  # "```python no-run" is a word for the tests
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, each at `project/` and its path."""
    for path in [*(ROOT / name for name in OUTSIDE), *sorted(ROOT.glob(RESULTS))]:
        files.append(File.generated(config, _site_path(path), abs_src_path=str(path)))
    return files


def _site_path(path: Path) -> str:
    """Where such a page lies on the site. A README would become the index of its folder: it gets a name of its own."""
    name = path.relative_to(ROOT).as_posix()
    return "project/" + {"README.md": "about.md", "benchmarks/README.md": "benchmarks/about.md"}.get(name, name)


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to their pages; those to files that are no pages into text."""
    pages = {os.path.realpath(file.abs_src_path): file for file in files if file.abs_src_path}
    parts = FENCE.split(NOTE.sub(r"```\1", markdown))  # every second one is a block of code
    parts[::2] = [LINK.sub(lambda link: _on_the_site(link, page.file, pages), part) for part in parts[::2]]
    return "".join(parts)


def _on_the_site(link: re.Match[str], source: File, pages: dict[str, File]) -> str:
    if "://" in link["path"] or source.abs_src_path is None:
        return link[0]
    target = os.path.realpath(os.path.join(os.path.dirname(source.abs_src_path), link["path"]))
    if target in pages:
        path = os.path.relpath(pages[target].src_uri, os.path.dirname(source.src_uri) or ".")
        return f"[{link['text']}]({path}{link['anchor'] or ''})"
    return link["text"] if os.path.exists(target) else link[0]  # what is nowhere fails a strict build
