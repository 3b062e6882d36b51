"""Hostile names, headers, keys, receipts, URLs and YAML: only our own errors, nothing changed, no secret shown.

The tests try some hundred of each; ten thousand with `pytest tests/test_hostile_input.py --hypothesis-profile=hostile`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import config
from holdfast.deliveries import read_receipt
from holdfast.errors import HoldfastError, MessageNotFound
from holdfast.stores.opening import locate

pytestmark = pytest.mark.timeout(1800)  # at full size

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
CANARY = "cAnArYsEcReT"
EVIL = [
    *("", ".", "..", "../up", "a/../../b", "/etc/passwd", "a\0b", "a\nb", "a\r\nb", "\x1b[31mred\x1b[0m", "\x07", "~"),
    *("'; DROP TABLE q; --", '"', "`id`", "$(id)", "%2e%2e%2f", "%00", "*", ">", "a.*.b", "$JS.API", "x" * 129),
    *("\u202e", "\ufeff", "é", "e\u0301", "🙂", "\ud800", "con", "nul", "a ", " a", "-rf", "dead", "q/dead", "#1"),
    *("null", "true", "0x10", "1e999", "NaN", "{}", "[]", "!!python/object:os.system", "<script>alert(1)</script>"),
]
TEXT = st.sampled_from(EVIL) | st.text(st.characters(exclude_categories=()), max_size=200)
TEXTS = st.lists(TEXT, min_size=1, max_size=3).map("".join)
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=20) | TEXTS
QUIETLY = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def broker(root: Path) -> Iterator[Any]:
    with holdfast.sync.connect(f"file://{root}/store") as broker:
        yield broker


@pytest.fixture(scope="module")
def queue(broker: Any) -> Any:
    return broker.queue("hostile", lease=3600)


def is_refused(call: Any) -> HoldfastError | None:
    """The error if there is one, which must be ours and say something."""
    try:
        call()
    except HoldfastError as error:
        assert str(error)
        return error
    return None


# ---------------------------------------------------------------------- what is stored


@QUIETLY
@given(name=TEXTS | ANYTHING)
def test_names(broker: Any, root: Path, name: Any) -> None:
    before = [info.name for info in broker.queues()]
    is_name = isinstance(name, str) and NAME.fullmatch(name) is not None
    error = is_refused(lambda: broker.queue(name).enqueue("x"))
    assert (error is None) == is_name
    if is_name:
        broker.delete_queue(name, force=True)
    assert [info.name for info in broker.queues() if info.name != name] == [each for each in before if each != name]
    assert [path.name for path in root.iterdir()] == ["store"]
    broker.queue("hostile")  # `delete_queue` may have hit it


@QUIETLY
@given(headers=st.dictionaries(TEXTS | ANYTHING, TEXTS | ANYTHING, max_size=4) | ANYTHING)
def test_headers(queue: Any, headers: Any) -> None:
    before = queue.stats()
    if is_refused(lambda: queue.enqueue("x", headers=headers)) is None:
        delivery = queue.dequeue()
        assert delivery.headers == (headers or {})
        delivery.complete(keep=False)
    assert _held(queue.stats()) == _held(before)


@QUIETLY
@given(key=TEXTS | ANYTHING)
def test_dedup_keys(queue: Any, key: Any) -> None:
    before = queue.stats()
    if is_refused(lambda: queue.enqueue("x", dedup_key=key)) is None and key is not None:
        id = queue.enqueue("y", dedup_key=key)
        assert queue.enqueue("z", dedup_key=key) == id
    for delivery in queue.dequeue_many(10):
        delivery.complete(keep=False)
    assert _held(queue.stats()) == _held(before)


@pytest.fixture(scope="module")
def held(broker: Any) -> Any:
    queue = broker.queue("receipts", lease=3600)
    queue.enqueue("held")
    return queue, queue.dequeue()


@QUIETLY
@given(data=st.data())
def test_receipts(held: Any, data: st.DataObject) -> None:
    queue, delivery = held
    receipt = data.draw(TEXTS | _spoilt(delivery.receipt) | ANYTHING)
    lease = read_receipt(receipt) if isinstance(receipt, str) else None
    assume(lease is None or (lease.id, lease.token) != (delivery.id, delivery.token))  # else it is the holder's
    assume(receipt != delivery.id)
    for verb in (
        queue.complete,
        queue.release,
        lambda each: queue.fail(each, "no"),
        lambda each: queue.extend(each, 60),
    ):
        assert is_refused(lambda verb=verb: verb(receipt)) is not None
    assert queue.complete_many([receipt]) == [False] if isinstance(receipt, str) else True
    assert queue.status(delivery.id) == "processing"
    if isinstance(receipt, str):
        assert is_refused(lambda: queue.get(receipt)) is None
        assert isinstance(is_refused(lambda: queue.cancel(receipt)), MessageNotFound | None)


def _spoilt(receipt: str) -> st.SearchStrategy[str]:
    """A receipt with some letters changed, cut or repeated."""
    places = st.integers(0, len(receipt) - 1)
    letters = st.characters(codec="ascii")
    changed = st.builds(lambda at, letter: receipt[:at] + letter + receipt[at + 1 :], places, letters)
    cut = st.builds(lambda at: receipt[:at], places)
    return changed | cut | st.builds(lambda at: receipt[:at] + receipt, places)


def _held(stats: Any) -> tuple[int, ...]:
    return stats.pending, stats.delayed, stats.processing, stats.retry, stats.dead


# ---------------------------------------------------------------------- what is configured

SCHEMES = [
    "memory",
    "file",
    "postgresql",
    "nats",
    "tls",
    "s3",
    "gs",
    "az",
    "slatedb+file",
    "slatedb+s3",
    "http",
    "xyz",
    "",
]
PART = st.sampled_from(
    ["", "h", "h:1", "h:x", "[::1]", "[", "h:99999", "db", "a=1", "operation_timeout=1", "sslmode=x"]
)
SECRET = st.builds("{}{}{}".format, TEXT, st.just(CANARY), TEXT)
URLS = st.builds(
    "{}{}{}:{}@{}/{}?{}&{}={}{}".format,
    st.sampled_from(SCHEMES), st.sampled_from(["://", ":", ":/", ":///", ""]), PART | TEXT, SECRET, PART, PART | TEXT,
    PART, st.sampled_from(["password", "secret_access_key", "token", "user", "sslkey", "colour"]), SECRET,
    st.sampled_from(["", "#x", "&", "&&=="]),
)  # fmt: skip


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@QUIETLY
@given(url=URLS | TEXTS)
def test_urls(url: str) -> None:
    try:
        found = locate(url)
    except HoldfastError as error:
        said = "".join(traceback.format_exception_only(error))
        assert CANARY not in said, said
    else:
        assert CANARY not in repr(found)


KEYS = st.sampled_from(["url", "store", "worker", "queues", "log_level", "lease", "retry", "poll_interval", "emails"])
VALUES = st.recursive(
    ANYTHING.filter(lambda value: not isinstance(value, bytes)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | TEXT, inner, max_size=4),
    max_leaves=12,
)
YAML = TEXTS | st.dictionaries(KEYS | TEXT, VALUES, max_size=5).map(lambda value: yaml.dump(value, allow_unicode=True))
BOMB = "a: &a [x,x]\nb: &b [*a,*a]\nurl: *b\n"


@QUIETLY
@given(text=YAML | st.just(BOMB), secret=st.booleans())
def test_yaml(root: Path, text: str, secret: bool) -> None:
    folder = root.parent / f"{root.name}-yaml"
    folder.mkdir(exist_ok=True)
    if secret:
        text = f"url: postgresql://u:{CANARY}@h/db\n{text}"
    (folder / "holdfast.yaml").write_bytes(text.encode(errors="surrogatepass"))
    try:
        found = config.load({}, folder)
    except HoldfastError as error:
        said = "".join(traceback.format_exception_only(error))
        assert CANARY not in said, said
    else:
        assert CANARY not in repr(found)
