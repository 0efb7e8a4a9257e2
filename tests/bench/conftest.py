"""One server of a tiny model for all tests that only use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.bench.server_process import ServerProcess
from tests.bench.profiles import tiny_profile


@pytest.fixture(scope="session")
def tiny_server() -> Iterator[ServerProcess]:
    with ServerProcess(tiny_profile()) as process:
        yield process
