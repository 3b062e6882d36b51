"""pyarrow and pandas take up to a second to load: no event loop may wait for that."""

import asyncio
import subprocess
import sys
import types

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.stores.log import arrow, rows
from holdfast.stores.log.rows import Rows

PROGRAM = """
import asyncio, sys, threading, holdfast
here, loaded = threading.current_thread(), {}
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("pyarrow", "pandas"):
            loaded[name] = threading.current_thread() is here  # pandas not at all: it takes 40 MB
sys.meta_path.insert(0, Watch())
async def main(url, verb):
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("q", retry=holdfast.Fixed(0.01))
        if verb == "send":
            some = [holdfast.Message(n, headers={"n": "1"}) for n in range(100)]  # more than payloads: needs it
            await queue.enqueue_many(some[:16])
            from holdfast.stores.log import arrow
            while not arrow.is_ready():
                await asyncio.sleep(0.01)
            await queue.enqueue_many(some)
        else:
            seen = 0
            await (await queue.dequeue()).fail("once")  # the archive remembers it
            while seen < 116:
                taken = await queue.dequeue_many(50, wait=5)
                seen += len(taken)
                await queue.complete_many(taken)
        await queue.archive.list()
        await queue.cleanup(3600)
        await queue.archive.list()  # from files now
        await queue.cleanup()
asyncio.run(main(*sys.argv[1:]))
print(loaded)
"""


def run(url, verb):
    done = subprocess.run([sys.executable, "-c", PROGRAM, url, verb], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("store", ["memory", "file"])
def test_no_event_loop_waits_for_pyarrow(store, tmp_path):
    url = "memory://" if store == "memory" else f"file://{tmp_path}/store"
    assert run(url, "send") == "{'pyarrow': False}"
    if store == "file":
        assert run(url, "take") == "{'pyarrow': False}"


def test_a_large_block_that_was_written_without_pyarrow_is_read(monkeypatch):
    monkeypatch.setattr("holdfast.stores.log.arrow.is_ready", lambda: False)
    some = Rows([b"%d" % n for n in range(100)], "application/json", [{"n": str(n)} for n in range(100)])
    data = bytes(rows.encode_at_once(some))
    assert rows.decode(data) == some
    assert rows.columns(data).column("payload").to_pylist() == some.payload
    assert not rows.waits_to_decode(data)


KINDS = {
    pa.binary(): st.binary(max_size=9),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=9),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.timestamp("us", tz="UTC"): st.integers(0, 2**60),
    pa.map_(pa.string(), pa.string()): st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_columns_are_those_of_pyarrow(kind):
    @given(st.lists(st.none() | KINDS[kind], max_size=20))
    def check(values):
        made = arrow.column(values, kind)
        made.validate(full=True)
        assert made.equals(pa.array(values, kind))

    check()


WORKER = """
import asyncio, sys, holdfast
sys.modules["numpy"] = None  # as where only Holdfast is installed: pyarrow loads it where it finds it
async def main(url, count):
    done = 0
    async def handle(value):
        nonlocal done
        done += 1
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("q")
        async with queue.worker(handle, concurrency=100):
            while done < int(count) or (await queue.stats()).processing:
                await asyncio.sleep(0.05)
            await queue.store._log("q").flusher.flush_all()
            kinds = [line.split()[:2] for line in open("/proc/self/smaps_rollup") if "Private" in line or "Rss" in line]
            private = sum(int(size) for kind, size in kinds if kind.startswith("Private"))
            resident = sum(int(size) for kind, size in kinds if kind == "Rss:")
            print(private // 1024, resident // 1024, "pyarrow" in sys.modules, "pyarrow.compute" in sys.modules)
asyncio.run(main(*sys.argv[1:]))
"""
COUNT = 12_000
RESIDENT_ONCE_MB = 72  # of a worker without an archive when the aim was set: 1.5 times as much with one, at most


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_with_an_archive_needs_little_more_memory(tmp_path):
    """Of its own, 11 to 14 MB more, 10 of them pyarrow; the pages of its libraries are shared with others."""
    (off, _, loads, _), (on, resident, _, computes) = (
        _worked(f"file://{tmp_path}/{archive}", archive=archive) for archive in (False, True)
    )
    assert resident < 1.5 * RESIDENT_ONCE_MB, f"{resident} MB resident"
    assert on - off < 16, f"{on} MB with the archive on, {off} MB with it off"
    assert not loads, "40 MB that only an archive needs"
    assert not computes, "9 MB that writing an archive does without"


def _worked(url, *, archive):
    """MB of a worker whose messages came in batches, private and resident; and whether it loaded pyarrow, and the part
    of it that computes.
    """

    async def send():
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("q", archive=archive)
            for _ in range(COUNT // 1000):
                await queue.enqueue_many(["x" * 1000] * 1000)

    arrow.load()
    asyncio.run(send())
    done = subprocess.run(
        [sys.executable, "-c", WORKER, url, str(COUNT)], capture_output=True, text=True, timeout=50, check=True
    )
    private, resident, loads, computes = done.stdout.split()
    return int(private), int(resident), loads == "True", computes == "True"


RACE = """
import importlib.abc, sys, threading, time
from holdfast.stores.log import arrow

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pyarrow.lib":
            time.sleep(0.3)

def use():
    import pyarrow as pa
    pa.ipc.open_stream

sys.meta_path.insert(0, Slow())
for work in (use, arrow.load, use):
    threading.Thread(target=work).start()
    time.sleep(0.05)
"""


def test_threads_that_need_it_while_it_is_loaded_get_all_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_is_given_back_while_another_thread_loads_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is listed before it has its names: `purge` and `cancel` failed with an AttributeError then."""
    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
    arrow.release()
