"""Every store that serves data pipelines runs the same suite."""

from __future__ import annotations

import pytest

from holdfast.config import QueueOptions, StoreOptions
from holdfast.stores.log import open_folder, open_memory
from holdfast.stores.opening import locate, open_store

QUEUE = "emails"


@pytest.fixture(params=["memory", "folder", "postgres", "s3"])
async def store(request, tmp_path):
    options = StoreOptions()
    if request.param in ("postgres", "s3"):
        location = locate(request.getfixturevalue(request.param).url)
        made = await open_store(location, StoreOptions(**location.options))
    else:
        made = await (open_memory("", options) if request.param == "memory" else open_folder(tmp_path, options))
    await made.create_queue(QUEUE, QueueOptions())
    yield made
    await made.close()
