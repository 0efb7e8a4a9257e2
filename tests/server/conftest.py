"""One server for all tests that only talk to it, and one that asks for keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from forebay.server.key_file import add_key
from tests.support.server_process import ServeCommand, running_server
from tests.support.tiny_chat import tiny_agent_model, tiny_chat_model

# the reference backend needs no compiled extension
AGENT_FLAGS = ["--backend", "native", "--max-requests", "16"]
TINY_FLAGS = ["--backend", "reference", "--max-requests", "16", "--set", "scheduler.max_waiting=32"]
TENANTS = {"alice": "acme", "bob": "beta", "carol": "acme"}  # name of a key -> tenant


@dataclass(frozen=True)
class GuardedServer:
    """A server with API keys: `keys` by name."""

    process: ServeCommand
    file: Path
    record: Path
    keys: dict[str, str]

    def get(self, path: str, **headers: str) -> httpx.Response:
        """GET without any key but what `headers` hold; `_` stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(self.process.url + path, headers=named, timeout=60)

    def client(self, name: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.keys[name]}"}
        return httpx.Client(base_url=self.process.url, headers=headers, timeout=60)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeCommand]:
    log = tmp_path_factory.mktemp("server") / "log"
    with running_server([str(tiny_model), *TINY_FLAGS, "--max-body-mib", "0.25"], log) as process:
        yield process


@pytest.fixture(scope="session")
def guarded(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    folder = tmp_path_factory.mktemp("guarded")
    file, record = folder / "keys.toml", folder / "record.jsonl"
    keys = {name: add_key(file, name, tenant) for name, tenant in TENANTS.items()}
    flags = [*TINY_FLAGS, "--api-keys", str(file), "--record", str(record)]
    with running_server([str(tiny_model), *flags], folder / "log", {"x-api-key": keys["alice"]}) as process:
        yield GuardedServer(process, file, record, keys)


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A client of a server whose model offers tools and reasons."""
    model = tiny_agent_model(tmp_path_factory.mktemp("model"))
    with (
        running_server([str(model), *AGENT_FLAGS], tmp_path_factory.mktemp("agent") / "log") as process,
        openai.OpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0, timeout=60) as made,
    ):
        yield made


@pytest.fixture(scope="session")
def http(server: ServeCommand) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def client(server: ServeCommand) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made
