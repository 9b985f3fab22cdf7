"""Fixtures that every test file shares."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lowgemm.device import Gpu


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests compile into a cache of their own: the user's neither helps nor suffers."""
    base = tmp_path_factory.getbasetemp()
    # The processes of a parallel run share what they compile.
    cache = base.parent / "cache" if "PYTEST_XDIST_WORKER" in os.environ else base / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOWGEMM_CACHE_DIR", str(cache))
        patch.delenv("LOWGEMM_CACHE", raising=False)
        yield


@pytest.fixture(autouse=True, scope="module")
def _settled_heap() -> None:
    """What earlier files keep (decoded kernels, compiled programs) is not gone through again.

    A collection over all of it takes seconds, and tests of who frees what collect often.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def gpu() -> Iterator[Gpu]:
    """The first GPU; without one the test is skipped with the reason."""
    from lowgemm.device import Gpu
    from lowgemm.errors import LowgemmError

    try:
        device = Gpu()
    except LowgemmError as error:
        pytest.skip(f"no GPU: {error.what.partition(':')[0]}")
    if device.capability < (8, 0):
        pytest.skip(f"{device.name} is {device.architecture}; sm_80 or later is needed")
    yield device
    device.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--slow`` runs what takes minutes as well."""
    parser.addoption("--slow", action="store_true", help="run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without ``--slow``, skip what takes minutes."""
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="takes minutes: run with --slow"))
