"""pyarrow and pandas take up to a second to load: no event loop may wait for that."""

import subprocess
import sys

import pytest

from holdfast.stores.log import rows
from holdfast.stores.log.rows import Rows

PROGRAM = """
import asyncio, sys, threading, holdfast
here, loaded = threading.current_thread(), {}
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("pyarrow", "pandas"):
            loaded[name] = threading.current_thread() is here
sys.meta_path.insert(0, Watch())
async def main(url, verb):
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("q")
        if verb == "send":
            await queue.enqueue_many(range(16))
            while "pandas" not in loaded or not all(name in sys.modules for name in loaded):
                await asyncio.sleep(0.01)
            await asyncio.to_thread(__import__("holdfast.stores.log.arrow").stores.log.arrow.load)
            await queue.enqueue_many(range(100))
        else:
            seen = 0
            while seen < 116:
                taken = await queue.dequeue_many(50, wait=5)
                seen += len(taken)
                await queue.complete_many(taken)
        await queue.archive.list()
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
    assert run(url, "send") == "{'pyarrow': False, 'pandas': False}"
    if store == "file":
        assert run(url, "take") == "{'pyarrow': False, 'pandas': False}"


def test_a_large_block_that_was_written_without_pyarrow_is_read(monkeypatch):
    monkeypatch.setattr("holdfast.stores.log.arrow.is_ready", lambda: False)
    some = Rows([b"%d" % n for n in range(100)], "application/json", [{"n": str(n)} for n in range(100)])
    data = bytes(rows.encode_at_once(some))
    assert rows.decode(data) == some
    assert rows.columns(data).column("payload").to_pylist() == some.payload
    assert not rows.waits_to_decode(data)
