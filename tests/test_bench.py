"""A tiny form of every benchmark: they run to the end and answer in the right shape. Nothing here judges a time."""

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks import bars
from benchmarks.bars import context
from benchmarks.bars import postgres as postgres_bars
from benchmarks.bars import s3 as s3_bars
from benchmarks.postgres import sides as postgres_sides
from benchmarks.s3 import throughput
from holdfast.bench import chart, compare, environment, latency, measure, queue, raw, store
from holdfast.bench.cli import app
from holdfast.bench.measure import Result, Sample, Side
from holdfast.bench.opponents import Answer
from holdfast.bench.show import Bar, as_table
from holdfast.errors import ConfigError
from tests.stores.log.bucket.fixtures import Place
from tests.stores.postgres.fixtures import Database

TINY = bars.Scale(
    repeats=1, bulk=2000, classic=400, drain=200, together=300, single=20, queues=20, waiting=2000, retries=1500,
    latency=5, idle=0.2, overhead=400, starts=1, batch=500, postgres=1000, settled=2000, picked_up=8,
    http=1000, bucket=400, far_turns=1, page_queues=3, archived=30, page_seen=0.0, page_rest=0.0,
)  # fmt: skip


def fine(value: float) -> bool:
    return math.isfinite(value) and value > 0


# ---------------------------------------------------------------------- numbers


def test_percentiles_are_of_what_was_measured() -> None:
    times = measure.latency(n / 100 for n in range(100))
    assert times is not None
    assert (times.count, times.p50, times.p95, times.p99, times.max) == (100, 0.50, 0.95, 0.99, 0.99)
    assert measure.latency([]) is None


async def test_sides_take_turns_in_both_directions() -> None:
    turns: list[str] = []

    def side(name: str) -> Side:
        async def run() -> Sample:
            turns.append(name)
            return Sample(10, 2.0)

        return Side(name, run)

    first, second = await measure.alternate([side("a"), side("b")], 3)
    assert turns == ["a", "b", "b", "a", "a", "b"]
    assert (first.median, second.samples) == (5.0, [5.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("ratio", "bar", "goal", "better", "result"),
    [
        (0.7, 0.6, 0.9, "more", "pass"),
        (0.5, 0.6, 0.9, "more", "FAIL"),
        (0.9, 0.6, 0.9, "more", "goal"),
        (1.4, 1.5, 1.1, "less", "pass"),
        (1.6, 1.5, 1.1, "less", "FAIL"),
        (1.0, 1.5, 1.1, "less", "goal"),
        (0.4, None, 0.5, "more", "below goal"),
    ],
)
def test_a_line_is_judged_by_its_bar_and_its_goal(ratio, bar, goal, better, result) -> None:
    line = context.line("x", Result.of("a", [ratio]), Result.of("b", [1.0]), bar=bar, goal=goal, better=better)
    assert (line.result, line.sure) == (result, True)


def test_a_line_whose_turns_disagree_is_not_sure() -> None:
    line = context.line("x", Result.of("a", [0.5, 0.7, 0.8]), Result.of("b", [1.0] * 3), bar=0.6)
    assert (line.ratio, line.low, line.high, line.sure) == (0.7, 0.5, 0.8, False)
    assert bars.verdict(line) == "pass?"


def test_the_raw_limits_are_measured(tmp_path: Path) -> None:
    assert fine(raw.fsynced_blocks(tmp_path, 3, 1000, 10).rate)
    assert fine(raw.blocks_with_index(tmp_path, 3, 1000, 10).rate)
    assert fine(raw.sqlite_inserts(tmp_path, 5, 100).rate)
    assert fine(raw.sqlite_take_and_delete(tmp_path, 5, 100).rate)
    assert fine(raw.sqlite_deletes(tmp_path, 5, 100, 2).rate)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


# ---------------------------------------------------------------------- programs


async def test_queue(tmp_path: Path) -> None:
    load = queue.Load(url=f"file://{tmp_path}", count=300, size=100, batch=100, concurrency=20)
    phases = await queue.measure(load, Bar(None, 1))
    assert len(phases) == 6
    assert phases[0].messages == phases[4].messages == 300
    assert all(fine(phase.rate) for phase in phases)
    assert all(len(row) == len(queue.COLUMNS) for row in queue.rows(phases))


async def test_queue_on_a_bucket(s3: Place) -> None:
    load = queue.Load(url=s3.url, count=100, size=100, batch=50, concurrency=20)
    phases = await queue.measure(load, Bar(None, 1))
    assert phases[0].requests is not None
    assert phases[0].requests["put"] * 100 >= 2
    assert phases[0].written is not None
    assert phases[0].written > 100
    assert queue.rows(phases)[0][-1] != ""


async def test_queue_with_several_processes(tmp_path: Path) -> None:
    load = queue.Load(url=f"file://{tmp_path}", count=301, size=10, batch=50, concurrency=10)
    (point,) = await queue.curve(load, "processes", [2], Bar(None, 1))
    assert point.at == 2
    assert point.phases[0].messages == point.phases[4].messages == 301


async def test_queue_with_a_backlog(tmp_path: Path) -> None:
    load = queue.Load(url=f"file://{tmp_path}", size=10, batch=100)
    points = await queue.waiting(load, [100, 300], Bar(None, 1))
    assert [point.at for point in points] == [100, 300]
    assert all(fine(phase.rate) for point in points for phase in point.phases)


async def test_store_is_for_the_log_engine(postgres: Database) -> None:
    with pytest.raises(ConfigError, match="what the log engine stands on"):
        await store.open_log(postgres.url)


@pytest.mark.parametrize("url", ["memory://", "file://{}", "slatedb+file://{}", "s3://"])
async def test_store(tmp_path: Path, url: str, request: pytest.FixtureRequest) -> None:
    bucket = url == "s3://"
    log = await store.open_log(request.getfixturevalue("s3").url if bucket else url.format(tmp_path))
    try:
        load = store.Load(count=250, value_size=100, batch_size=50, test_get=20)
        operations = await store.measure(log, load, Bar(None, 1))
        left = await log.space.read(lambda reading: reading.list("bench/"))
    finally:
        await log.close()
    assert left == []
    assert len(operations) == 5
    assert operations[-1].objects == 250
    assert all((each.requests is not None and each.requests >= 1) == bucket for each in operations[:3])
    assert all(len(row) == len(store.COLUMNS) for row in store.rows(operations))


async def test_latency(tmp_path: Path) -> None:
    found = await latency.measure(f"file://{tmp_path}", count=5, rate=50, idle=0.2, bar=Bar(None, 5))
    assert found.messages == 5
    assert found.pick_up is not None
    assert fine(found.pick_up.p50)
    assert found.idle_cpu >= 0


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peers' own environment needs the network; here they only answer."""

    async def ask(opponent, python, **load) -> Answer:
        return Answer("1.0", "as they like it", bulk=0.01, drain=0.02, single=0.03)

    monkeypatch.setattr("holdfast.bench.compare.ask", ask)
    for module in ("blocking", "drain"):
        monkeypatch.setattr(f"benchmarks.bars.{module}.ask", ask)


# They need what peers bring from the network, or minutes; their programs run in the tests of each store.
LONG = {"help", "postgres-drain", "nats-drain", "s3-requests", "s3-throughput", "s3-idle", "s3-producers", "spark"}


@pytest.mark.timeout(180)  # celery starts workers, beside seven other tests
@pytest.mark.parametrize("name", [name for name in bars.BARS if name not in LONG])
async def test_bars(tmp_path: Path, name: str, peers: None) -> None:
    bench = bars.Bench(tmp_path, TINY, lambda text: None, lambda: Path("python"))
    seen: list[str] = []
    report = await bars.measure(bench, bars.chosen([name]), lambda lines: seen.extend(line.name for line in lines))
    assert seen == [line.name for line in report.lines]
    assert all(math.isfinite(line.ratio) and line.ratio >= 0 for line in report.lines)
    assert all(len(row) == len(bars.COLUMNS) for row in bars.rows(report.lines))
    assert all(line.store == bars.BARS[name].store and line.name in bars.markdown(report) for line in report.lines)


def test_bars_of_postgres_are_judged_beside_the_best_peer() -> None:
    sides = {"raw COPY": 100.0, "holdfast": 50.0, "holdfast, archive": 40.0, "holdfast worker": 90.0}
    sides |= {"procrastinate": 10.0, "pgqueuer": 40.0}
    rounds = {name: [postgres_sides.Figures(bulk=rate, drain=rate)] for name, rate in sides.items()}
    copy, peer, worker, archive = postgres_bars.lines_of(rounds, "some")
    assert [line.ratio for line in (copy, peer, worker, archive)] == [0.5, 1.25, 2.25, 0.8]
    assert [line.result for line in (copy, peer, worker)] == ["pass", "pass", "FAIL"]
    assert peer.other.name == "pgqueuer"


def test_four_processes_on_a_bucket_are_judged_beside_one() -> None:
    found = {shape: [throughput.Turn(400.0 * shape.processes, 1, 0, 0.1)] for shape in throughput.SHAPES}
    lines = {line.name: line for line in s3_bars.lines_of(found)}
    one, four = throughput.PAIRS[-1]
    assert lines[f"{four.name}, against {one.name}"].ratio == 4.0
    assert lines[f"60 ms a request: {one.name}"].result == "FAIL"


def test_stores_and_bars_can_be_chosen_by_name() -> None:
    of_postgres = [name for name in bars.BARS if name.startswith("postgres-")]
    assert "postgres-drain" in of_postgres
    assert bars.chosen(["postgres", "help"]) == [*of_postgres, "help"]
    assert bars.chosen([]) == list(bars.BARS)


def test_an_unknown_bar_is_named() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        bars.chosen(["nonsense"])


async def test_compare_and_what_it_saves(tmp_path: Path, peers: None) -> None:
    load = compare.Load(count=200, single=5, size=100, batch=100, concurrency=10, repeats=2)
    found = await compare.compare(load, Path("python"), folder=tmp_path, note=lambda text: None)
    columns, body = compare.table(found)
    assert len(body) == 7
    assert all(len(row) == len(columns) for row in body)
    saved = compare.save(found, tmp_path / "results")
    assert [path.suffix for path in saved] == [".json", ".md", ".svg"]
    again = msgspec.json.decode(saved[0].read_bytes(), type=compare.Comparison)
    assert again == found
    ElementTree.fromstring(saved[2].read_text())
    assert str(tmp_path) not in "".join(path.read_text() for path in saved), "no paths in published results"


def test_a_chart_stays_inside_its_frame() -> None:
    stripes = [chart.Stripe("a <b>", "holdfast", 5.0, 4.0, 6.0), chart.Stripe("c", "raw", 50_000.0, 40_000.0, 1e6)]
    picture = ElementTree.fromstring(chart.draw("title & more", [("load", stripes)], "foot"))
    widths = [float(part.get("width", "0").rstrip("%")) for part in picture.iter() if part.tag.endswith("rect")]
    assert max(widths) <= 960


# ---------------------------------------------------------------------- the command line


def test_no_cell_of_a_table_in_a_file_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    cells = ["slatedb", "a long name " * 8, "ours " * 8, "other " * 8, "0.97 (0.93–1.02)", "≥ 0.45", "≥ 0.8", "FAIL?"]
    as_table("bars", bars.COLUMNS, [cells, cells])
    shown = capsys.readouterr().out
    assert [shown.count(cell.strip()) for cell in cells] == [2] * len(cells)


def test_the_commands_say_what_they_do() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in ("queue", "store", "latency", "compare"))


def test_store_from_the_command_line() -> None:
    result = CliRunner().invoke(app, ["store", "--url", "memory://", "--count", "100", "--test-get", "5", "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)) == 5


@pytest.mark.parametrize("said_by", ["HOLDFAST_URL", "holdfast.yaml", "--url", "nobody"])
def test_the_store_that_is_configured_is_measured_and_named(
    said_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "configured"
    arguments = ["store", "--count", "100", "--test-get", "5", "--json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    if said_by == "HOLDFAST_URL":
        monkeypatch.setenv("HOLDFAST_URL", folder.as_uri())
    elif said_by == "holdfast.yaml":
        (tmp_path / "holdfast.yaml").write_text(f"url: {folder.as_uri()}\n")
    elif said_by == "--url":
        monkeypatch.setenv("HOLDFAST_URL", (tmp_path / "other").as_uri())
        arguments += ["--url", folder.as_uri()]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert folder.exists() == (said_by != "nobody")
    assert not (tmp_path / "other").exists()
    named = "which was temporary" if said_by == "nobody" else f"measured {folder.as_uri()}"
    assert named in result.stderr
    assert len(json.loads(result.stdout)) == 5


def test_queue_from_the_command_line() -> None:
    result = CliRunner().invoke(app, ["queue", "--count", "100", "--size", "10", "--concurrency", "5"])
    assert result.exit_code == 0, result.output
    assert "in and out" in result.output


@pytest.mark.parametrize("text", ["1,x", "0"])
def test_a_bad_list_is_a_usage_error(text: str) -> None:
    assert CliRunner().invoke(app, ["queue", "--processes", text]).exit_code == 2


def test_without_pinned_requirements_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    with pytest.raises(ConfigError, match=r"peers\.txt"):
        environment.requirements()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["queue", "--url", "nope://"], "unknown scheme"),
        (["queue", "--url", "memory://"], "belongs to one process"),
        (["queue", "--url", "slatedb+file:///tmp/x", "--processes", "1,2"], "belongs to one process"),
        (["latency", "--url", "memory://"], "belongs to one process"),
        (["latency", "--url", "file:///dev/null/x"], "is not a folder"),
    ],
)
def test_a_store_that_cannot_be_measured_is_one_line(command: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_no_numbers_are_a_usage_error() -> None:
    for option in ("--processes", "--sizes", "--waiting"):
        assert CliRunner().invoke(app, ["queue", option, ","]).exit_code == 2
