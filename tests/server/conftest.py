"""One server for all tests that only talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.support.server_process import ServeCommand, running_server
from tests.support.tiny_chat import tiny_chat_model

# the reference backend needs no compiled extension
TINY_FLAGS = ["--backend", "reference", "--max-requests", "16", "--set", "scheduler.max_waiting=32"]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    log = tmp_path_factory.mktemp("server") / "log"
    with running_server([str(tiny_model), *TINY_FLAGS, "--max-body-mib", "0.25"], log) as process:
        yield process


@pytest.fixture(scope="session")
def http(server: ServeCommand) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def client(server: ServeCommand) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made
