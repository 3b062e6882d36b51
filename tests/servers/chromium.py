"""A real browser for tests of the page: the machine's own Chromium by Playwright, and axe-core from npm."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.bench.environment import cache_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VERSION = "4.11.0"  # of axe-core
FOLDER = f"axe-core-{VERSION}"  # in the cache
_INSTALL = 5 * 60.0  # seconds
# Nothing of Chromium's own goes over the network.
_QUIET = ("--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-gpu")


@contextmanager
def browser() -> Iterator[Browser]:
    """Headless, without its sandbox, which root has not."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if program is None:
        raise RuntimeError("the page is tested with Chromium: install it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", *_QUIET])
        try:
            yield started
        finally:
            started.close()


def axe() -> Path:
    """The script that looks for what keeps people out; installed when it is not there."""
    folder = (cache_folder() / FOLDER).resolve()  # a link, where a run of the tests has a cache of its own
    if not (folder / "complete").exists():
        _install(folder)
    return folder / "node_modules" / "axe-core" / "axe.min.js"


def _install(folder: Path) -> None:
    """Beside its place first, so that two who install it at once do not meet."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("the page is looked at by axe-core, which needs npm: install it, and run this again")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="axe-", dir=folder.parent))
    command = [npm, "install", "--prefix", str(beside), "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run([*command, f"axe-core@{VERSION}"], check=True, capture_output=True, text=True, timeout=_INSTALL)
        (beside / "complete").touch()
        if not folder.exists():
            beside.rename(folder)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"npm could not install axe-core {VERSION}: {error.stderr.strip()[-500:]}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def serious(page: Any, *rules: str) -> list[str]:
    """What axe finds on a page that is open by these rules, or by all, of what is serious or worse."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe().read_text() + "\nundefined")
    how = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("(how) => axe.run(document, how)", how)["violations"]
    return [
        f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
