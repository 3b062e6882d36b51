"""The documentation is true: links resolve, code runs, tables name what the code has."""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

import holdfast
from holdfast import config, errors, events
from holdfast.app import AppHandler
from holdfast.archive import Archive
from holdfast.cli.root import app as cli
from holdfast.dead_letters import DeadLetters
from holdfast.limits import DEDUP_KEY_BYTES, HEADERS_BYTES
from holdfast.stores import records
from holdfast.stores.base import Store
from holdfast.stores.log.bucket.transaction import WINDOW
from holdfast.stores.log.drafts import BLOCK_BYTES, BLOCK_MESSAGES
from holdfast.stores.log.head.machine import GROUPS_MOST, HEAVY, NEAR_KEPT, NEAR_MOST
from holdfast.stores.log.head.repeat import MARGIN
from holdfast.stores.log.head.state import FLUSH_MOST
from holdfast.stores.log.partition import FLUSH_AGE, FLUSH_ROWS
from holdfast.stores.nats.clock import MARGIN_S
from holdfast.stores.nats.reserve import RESERVE_BYTES
from holdfast.stores.postgres.staging import SINK_DAYS
from holdfast.worker.outage import AWAY
from holdfast.worker.prefetch import ENOUGH_BYTES
from holdfast.worker.processes import RESTART
from tests import ROOT

DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "holdfast"
PAGES = sorted(DOCS.rglob("*.md"))
ALL = [ROOT / "README.md", *PAGES]

FENCE = re.compile(r"^```(?P<language>\S*) *(?P<note>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@functools.cache
def text_of(page: str) -> str:
    return (DOCS / page).read_text()


def prose(page: Path) -> str:
    """The page without its code."""
    return FENCE.sub("", page.read_text())


def section(page: str, title: str) -> str:
    """What stands under a heading, up to the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}$", text_of(page), re.M)
    assert found, f"{page} has no heading {title!r}"
    rest = text_of(page)[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.M)
    return rest[: end.start()] if end else rest


def first_cells(table: str) -> list[str]:
    """The first column of the tables in a text: what stands in backticks there."""
    return re.findall(r"^\| `([^`]+)`", table, re.M)


# ---------------------------------------------------------------------- links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_listed() -> None:
    linked = set()
    for start in (DOCS / "index.md", DOCS / "design" / "index.md"):
        linked |= {(start.parent / link.partition("#")[0]).resolve() for link in LINK.findall(prose(start))}
    assert [name_of(page) for page in PAGES if page not in linked and page.name != "index.md"] == []


# ---------------------------------------------------------------------- words and numbers

COMMON = {"--url", "--json", "--verbose", "--quiet", "--utc"}  # options that every command takes
QUAINT = re.compile(r"\b(anew|beside|by little|dear|is told|of late|whoever)\b", re.I)


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_prose_is_plain(page: Path) -> None:
    assert [line for line in prose(page).splitlines() if QUAINT.search(line)] == []


def test_the_code_speaks_plainly_too() -> None:
    """Docstrings, comments and messages. In the log engine and on NATS such words are still to be replaced."""
    later = (PACKAGE / "stores" / "log", PACKAGE / "stores" / "nats")
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if not any(path.is_relative_to(part) for part in later)]
    found = [(name_of(path), line) for path in paths for line in path.read_text().splitlines() if QUAINT.search(line)]
    assert found == []


QUEUE = config.QueueOptions()
FACTS = [
    ("guide/embedded-store.md", f"until there are {FLUSH_ROWS:,} of them"),
    ("guide/s3-queue-without-a-broker.md", f"once {FLUSH_ROWS:,} have gathered"),
    ("guide/s3-queue-without-a-broker.md", f"gives no clear answer for {WINDOW:.0f} seconds"),
    ("guide/retries-and-dead-letters.md", f"When more than {NEAR_MOST} messages wait for a retry"),
    ("guide/choosing-a-lease.md", f"The default is {QUEUE.lease:.0f} seconds"),
    ("guide/choosing-a-lease.md", f"| almost all | {QUEUE.lease:.0f} s, the default |"),
    ("guide/troubleshooting.md", f"when the lease ends, {QUEUE.lease:.0f} seconds at most by default"),
    ("guide/troubleshooting.md", f"up to {QUEUE.retry.cap:.0f} seconds away with the default policy"),
    ("guide/troubleshooting.md", f"tries again with pauses of up to {AWAY.cap:.0f} seconds"),
    ("guide/workers.md", f"tries again with pauses of up to {AWAY.cap:.0f} seconds"),
    ("guide/workers.md", f"when they die, after {RESTART.base} to {RESTART.cap:.0f} seconds"),
    ("guide/workers.md", f"Claims of {ENOUGH_BYTES >> 20} MiB and more do not grow"),
    ("guide/embedded-store.md", f"`max_message_size`, {QUEUE.max_message_size >> 20} MiB by default"),
    ("guide/spark.md", f"map<string,string> | {HEADERS_BYTES >> 10} KiB in all"),
    ("guide/spark.md", f"| string | up to {DEDUP_KEY_BYTES >> 10} KiB; not on buckets"),
    ("guide/spark.md", f"remembered for {SINK_DAYS:.0f} days"),
    ("guide/nats-runbook.md", f"within {MARGIN_S * 1000:.0f} ms of each other"),
    ("stores/nats.md", f"less {MARGIN_S * 1000:.0f} ms"),
    ("guide/nats-runbook.md", f"continue with {RESERVE_BYTES >> 20} MiB"),
    ("design/index.md", f"When {FLUSH_ROWS:,} have gathered"),
    ("design/log-engine.md", f"once {FLUSH_ROWS:,} messages, {GROUPS_MOST} groups or {HEAVY >> 10} KiB"),
    ("design/log-engine.md", f"have gathered, or after {FLUSH_AGE:.0f} seconds"),
    ("design/log-engine.md", f"writes at most {FLUSH_MOST:,} messages"),
    ("design/log-engine.md", f"up to {BLOCK_MESSAGES:,} messages or {BLOCK_BYTES >> 20} MiB"),
    ("design/log-engine.md", f"more than {NEAR_MOST} messages wait, all but the nearest {NEAR_KEPT} leave"),
    ("design/buckets.md", f"0 on atomic spaces and {WINDOW:.0f} seconds on buckets"),
    ("design/buckets.md", f"lease counts as over {MARGIN:.0f} seconds after its end"),
]


@pytest.mark.parametrize(("page", "fact"), FACTS)
def test_numbers_are_those_of_the_code(page: str, fact: str) -> None:
    assert fact in " ".join(text_of(page).split())


DEFAULTS = {
    name: value
    for kind in (config.QueueOptions, config.StoreOptions, config.WorkerOptions)
    for name, value in msgspec.structs.asdict(kind()).items()
}


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_defaults_in_brackets_are_those_of_the_options(page: Path) -> None:
    """`grace` (30 s), `dedup_window` (300 s by default)."""
    told = re.findall(r"`(\w+)` \(([\d.]+) s(?: by default)?\)", prose(page))
    assert [(name, value) for name, value in told if DEFAULTS.get(name, float(value)) != float(value)] == []


TOPICS = ("backups", "buckets", "folder", "log-engine", "nats", "postgres", "schedules", "server", "slatedb", "spark")
RESULTS = ("compare", "file", "nats", "postgres", "s3", "slatedb", "spark")
MOST_WORDS = 40  # of the glossary: what a new engineer has to learn


def test_design_is_one_page_per_topic() -> None:
    assert sorted(page.stem for page in (DOCS / "design").glob("*.md")) == sorted([*TOPICS, "index"])


@pytest.mark.parametrize("topic", TOPICS)
def test_design_pages_end_with_dated_decisions(topic: str) -> None:
    last = re.split(r"^## ", text_of(f"design/{topic}.md"), flags=re.M)[-1]
    title, *decisions = [line for line in last.splitlines() if line.startswith("- ") or line == "Decisions"]
    assert title == "Decisions"
    assert [line for line in decisions if not re.match(r"- \*\*\d{4}-\d\d-\d\d ", line)] == []


def test_glossary_is_short() -> None:
    words = re.findall(r"^\| (?!word |---)", section("design/index.md", "Glossary"), re.M)
    assert 0 < len(words) <= MOST_WORDS


def test_results_are_one_file_per_store() -> None:
    assert sorted(page.stem for page in (ROOT / "benchmarks" / "results").glob("*.md")) == sorted(RESULTS)


# ---------------------------------------------------------------------- code


def programs() -> list[Any]:
    """Every ```python block of the pages, unless its fence says `no-run`. The README's run in test_project.py."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in FENCE.finditer(text):
            if block["language"] == "python" and block["note"] != "no-run":
                line = text[: block.start()].count("\n") + 1
                found.append(pytest.param(block["code"], id=f"{name_of(page)}:{line}"))
    return found


@pytest.mark.parametrize("code", programs())
def test_code_runs(code: str, tmp_path: Path) -> None:
    """Each block is a program of its own, in a folder of its own."""
    assert "import holdfast" in code
    program = tmp_path / "program.py"
    program.write_text(code)
    (tmp_path / "servers").symlink_to(ROOT / "tests" / "servers")  # what some pages start
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr


def test_python_fences_say_what_they_are() -> None:
    """`python` runs, `python no-run` does not; anything else would be a block that nobody checks."""
    blocks = [(name_of(page), block) for page in ALL for block in FENCE.finditer(page.read_text())]
    fences = [(page, block["language"], block["note"]) for page, block in blocks if block["language"][:2] == "py"]
    assert [fence for fence in fences if fence[1:] not in (("python", ""), ("python", "no-run"))] == []


# ---------------------------------------------------------------------- the command line


def commands() -> dict[str, Any]:
    """Every command of the command line by its words."""
    root = typer.main.get_command(cli)
    context = root.make_context("holdfast", [], resilient_parsing=True)
    found: dict[str, Any] = {}

    def walk(words: str, command: Any) -> None:
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                walk(f"{words} {name}", command.get_command(context, name))
        else:
            found[words] = command

    walk("holdfast", root)
    return found


def options_of(command: Any) -> set[str]:
    """Its options, without those every command has."""
    names = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    common = {"--help", *COMMON}
    return {name for name in names if name.startswith("--")} - common


def test_cli_page_has_every_command() -> None:
    titles = re.findall(r"^#+ (holdfast .+)$", text_of("reference/cli.md"), re.M)
    assert sorted(titles) == sorted(commands())


@pytest.mark.parametrize("words", sorted(commands()))
def test_cli_page_has_every_option(words: str) -> None:
    said = section("reference/cli.md", words)
    assert {name for name in options_of(commands()[words]) if f"`{name}" not in said} == set()


def shell_lines() -> list[Any]:
    """Every line of the documentation that calls `holdfast`."""
    found = []
    for page in ALL:
        for block in FENCE.finditer(page.read_text()):
            if block["language"] == "sh":
                lines = [line for line in block["code"].splitlines() if line.startswith("holdfast ")]
                found += [pytest.param(line, id=f"{name_of(page)}: {line}") for line in lines]
    return found


@pytest.mark.parametrize("line", shell_lines())
def test_commands_in_the_documentation_exist(line: str) -> None:
    words = shlex.split(line.partition(" | ")[0], comments=True)
    known = commands()
    name = max((name for name in known if words[: len(name.split())] == name.split()), key=len, default=None)
    assert name is not None, f"there is no such command: {line}"
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= options_of(known[name]) | COMMON


# ---------------------------------------------------------------------- the API


def shown_default(value: object) -> str:
    """A default as the pages write it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.0f}" if value == int(value) else f"{value}"
    if isinstance(value, str):
        return value
    return f"{type(value).__name__}()"


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Queue options", config.QueueOptions),
        ("Store options", config.StoreOptions),
        ("Worker options", config.WorkerOptions),
    ],
)
def test_option_tables_are_exact(title: str, kind: Any) -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", section("guide/configuration.md", title), re.M)
    defaults = msgspec.structs.asdict(kind())
    assert rows == [(name, shown_default(value)) for name, value in defaults.items()]


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_is_in_the_api_page(name: str) -> None:
    assert re.search(rf"`(holdfast\.)?{name}\b", text_of("reference/api.md"))


def public(kind: type) -> dict[str, Any]:
    """The public members of a class, in the order they are written."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("holdfast"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    return found


def written(name: str, function: Any) -> str:
    """A method as the page writes it: names and defaults, no types, no self."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    return name + str(inspect.Signature(parameters[1:]))


FACES = {
    "Broker": holdfast.Broker,
    "Queue": holdfast.Queue,
    "Dead letters": DeadLetters,
    "Archive": Archive,
    "Delivery": holdfast.Delivery,
    "Record": holdfast.Record,
    "Worker": holdfast.Worker,
    "Context": holdfast.Context,
    "App": holdfast.App,
    "Handlers of an app": AppHandler,
}


@pytest.mark.parametrize("title", FACES)
def test_api_page_has_every_method_as_it_is(title: str) -> None:
    """A missing line is shown as it has to be written."""
    said = first_cells(section("reference/api.md", title))
    named = {word for cell in said for word in cell.split()}
    missing = []
    for name, member in public(FACES[title]).items():
        if inspect.isfunction(member):
            missing += [line for line in [written(name, member)] if line not in said]
        elif isinstance(member, property) and name not in named:
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("title", FACES)
def test_api_page_has_no_method_that_is_not(title: str) -> None:
    said = re.findall(r"^(\w+)\(", "\n".join(first_cells(section("reference/api.md", title))), re.M)
    assert [name for name in said if not hasattr(FACES[title], name)] == []


def test_events_page_has_every_event() -> None:
    rows = re.findall(r"^\| `([^`]+)` .*\| (\w+) \|$", text_of("reference/events.md"), re.M)
    names = {10: "debug", 20: "info", 30: "warning", 40: "error"}
    assert rows == [(name, names[level]) for name, level in events.LEVELS.items()]


def test_errors_page_has_every_error() -> None:
    known = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]
    assert first_cells(text_of("reference/errors.md")) == known


def test_states_page_has_every_status() -> None:
    assert sorted(first_cells(text_of("reference/states.md"))) == sorted(typing.get_args(records.Status))


def test_seam_page_has_every_method() -> None:
    expected = [written(name, member) for name, member in public(Store).items() if inspect.isfunction(member)]
    assert first_cells(section("reference/seam.md", "Methods")) == expected


@pytest.mark.parametrize("page", sorted((DOCS / "design").glob("*.md")), ids=name_of)
def test_files_named_in_the_design_exist(page: Path) -> None:
    package = ROOT / "src" / "holdfast"
    named = re.findall(r"`([\w/]+(?:\.pyi?|/))`", page.read_text())
    assert [name for name in named if not any((base / name).exists() for base in (package, ROOT))] == []
