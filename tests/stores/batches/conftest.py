"""Every store that serves data pipelines runs the same suite."""

from __future__ import annotations

import pytest

from holdfast.config import QueueOptions, StoreOptions
from holdfast.stores.log import open_folder, open_memory
from holdfast.stores.opening import locate, open_store

QUEUE = "emails"


STORES = ["memory", "folder", "postgres", "s3"]


@pytest.fixture(params=STORES)
async def store(request, tmp_path):
    """With parameters of its own a module adds to these: "s3 3" has three shards."""
    options = StoreOptions()
    server, _, shards = request.param.partition(" ")
    if server in ("postgres", "s3"):
        location = locate(request.getfixturevalue(server).url)
        made = await open_store(location, StoreOptions(**location.options))
    else:
        made = await (open_memory("", options) if request.param == "memory" else open_folder(tmp_path, options))
    await made.create_queue(QUEUE, QueueOptions(shards=int(shards or 1)))
    yield made
    await made.close()
