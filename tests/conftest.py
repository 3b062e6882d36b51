"""Shared by all tests."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("hostile", max_examples=10_000, deadline=None)  # see test_hostile_input.py

# The suite is library code; without this its assertions would say nothing.
pytest.register_assert_rewrite("holdfast.testing.contract", "tests.toy_store")

from holdfast.bench.environment import cache_folder  # noqa: E402
from tests.scheduling import TogetherOnSpark, longest_first  # noqa: E402
from tests.servers import azure, chromium  # noqa: E402
from tests.stores.log.bucket.fixtures import s3, s3_server  # noqa: E402, F401 - fixtures for the tests on buckets
from tests.stores.postgres.fixtures import postgres, postgres_server  # noqa: E402, F401 - fixtures for the tests on PostgreSQL


@pytest.fixture(scope="session", autouse=True)
def cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands leave in the user's cache is not left in yours; what takes long to install by npm is."""
    kept = {name: cache_folder() / name for name in (azure.FOLDER, chromium.FOLDER)}
    ours = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(ours))
        cache_folder().mkdir()
        for name, place in kept.items():
            (cache_folder() / name).symlink_to(place)
        yield


@pytest.fixture(autouse=True)
def log_level_as_before() -> Iterator[None]:
    """A configuration may set the level of our loggers, for the whole process; the next test wants to hear again."""
    ours = logging.getLogger("holdfast")
    before = ours.level
    yield
    ours.setLevel(before)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


def pytest_collection_finish() -> None:
    """Ten thousand tests are a million objects: no collection of garbage need look at them from here on."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return TogetherOnSpark(config, log)
