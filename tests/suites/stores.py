"""A store of each kind for a whole suite."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from holdfast.sync import connect


@contextmanager
def store(kind: str) -> Iterator[str]:
    """Its URL; the server ends with it. What is imported is only what this kind needs."""
    with ExitStack() as stack:
        if kind == "memory":
            yield f"memory://m{uuid4().hex}"
        elif kind == "file":
            yield f"file://{Path(stack.enter_context(tempfile.TemporaryDirectory(prefix='holdfast-suite-')), 'store')}"
        elif kind == "postgresql":
            from tests.servers.postgres import Server as Postgres

            url = stack.enter_context(Postgres(settings={"fsync": "off"})).url()
            with connect(url) as broker:
                broker.install()
            yield url
        elif kind == "s3":
            from tests.servers.s3 import Server as S3

            yield stack.enter_context(S3()).url("suite")
        else:
            from tests.servers.nats import Server as Nats

            yield f"{stack.enter_context(Nats()).url}?prefix=suite"
