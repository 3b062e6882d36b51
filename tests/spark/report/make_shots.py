"""The picture of a report for README and guide: `python -m tests.spark.report.make_shots` writes it."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.spark import jobs
from holdfast.spark.report.figures import Figures
from holdfast.spark.report.page import page
from tests import ROOT
from tests.servers.chromium import browser
from tests.spark.report import shop

PICTURE = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1200, 1330  # down to the first charts: what comes below is for those who scroll


def measured(folder: Path) -> Figures:
    now = float(int(time.time()))
    url, _ = shop.fill(folder, now, note="")
    since = datetime.fromtimestamp(now - 900 - shop.HOURS * shop.HOUR, UTC)
    spark = jobs.session("local[2]")
    try:
        jobs.report(spark, folder / "lake", folder / "out", since=since, url=url)
    finally:
        spark.stop()
    return msgspec.json.decode((folder / "out" / "report.json").read_bytes(), type=Figures)


def shoot(figures: Figures, folder: Path) -> None:
    """With the places of a shop, not of this machine."""
    present = msgspec.structs.replace(figures.present, store="file:///var/lib/shop")
    text = page(msgspec.structs.replace(figures, lake="/data/lake", present=present))
    (folder / "page.html").write_text(text)
    with browser() as started:
        opened = started.new_page(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
        opened.goto((folder / "page.html").as_uri())
        opened.screenshot(path=PICTURE, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shoot(measured(Path(folder)), Path(folder))


if __name__ == "__main__":
    main()
