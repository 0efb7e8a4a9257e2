"""Tenants: whose key it is decides whose cached prefixes a request can reuse."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from forebay.engine.async_engine import AsyncEngine
from forebay.profile import load_profile
from forebay.server.app import build_app
from forebay.server.auth import ApiKeys
from forebay.server.key_file import add_key, read_key_file
from forebay.server.state import ServerSettings
from forebay.server.tenants import EVERYONE, Tenant
from tests.server.conftest import GuardedServer
from tests.server.test_http import error_of

BLOCK = 16  # tokens; less is never cached
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def cached(client: httpx.Client, path: str, text: str, **fields: Any) -> int:
    """Prompt tokens that came from the prefix cache."""
    prompt = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    answer = client.post(path, json={"model": "tiny-chat", "max_tokens": 1, **prompt, **fields})
    assert answer.status_code == 200, answer.text
    found: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def prompt(name: str) -> str:
    """Nobody else's text, from its first block on."""
    return f"{name}: there was a prompt of some length that nobody had sent before, and it was worth keeping."


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_two_tenants_never_share_a_prefix(guarded: GuardedServer, path: str) -> None:
    text = prompt(f"tenants {path}")
    with guarded.client("alice") as alice, guarded.client("bob") as bob, guarded.client("carol") as carol:
        assert cached(alice, path, text) == 0
        own = cached(alice, path, text)
        assert own >= BLOCK
        assert cached(bob, path, text) == 0  # beta
        assert cached(carol, path, text) == own  # another key of acme
        assert cached(bob, path, text) == own


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_cache_salt_divides_a_tenant_and_reaches_no_other(guarded: GuardedServer, path: str) -> None:
    text = prompt(f"salts {path}")
    with guarded.client("alice") as alice, guarded.client("bob") as bob, guarded.client("carol") as carol:
        assert cached(alice, path, text, cache_salt="x") == 0
        own = cached(alice, path, text, cache_salt="x")
        assert own >= BLOCK
        assert cached(alice, path, text) == 0
        assert cached(alice, path, text, cache_salt="y") == 0
        assert cached(bob, path, text, cache_salt="x") == 0
        assert cached(carol, path, text, cache_salt="x") == own
        assert cached(alice, path, text, cache_salt=None) == own  # null is a field that was not given


def test_embeddings_are_a_tenants_own(guarded: GuardedServer) -> None:
    text = prompt("embedded")
    with guarded.client("alice") as alice, guarded.client("bob") as bob:
        assert alice.post("/v1/embeddings", json={"model": "tiny-chat", "input": text}).status_code == 200
        assert cached(bob, COMPLETIONS, text) == 0
        assert cached(alice, COMPLETIONS, text) >= BLOCK


def test_knowing_another_tenants_salt_does_not_help(guarded: GuardedServer) -> None:
    text = prompt("stolen")
    stolen = Tenant.derived("acme", bytes.fromhex(read_key_file(guarded.file).secret)).cache_salt
    with guarded.client("alice") as alice, guarded.client("bob") as bob:
        cached(alice, COMPLETIONS, text)
        assert cached(alice, COMPLETIONS, text) >= BLOCK
        for salt in (stolen, "acme", "alice", guarded.keys["alice"]):
            assert cached(bob, COMPLETIONS, text, cache_salt=salt) == 0


def test_without_keys_a_cache_salt_divides_everyone(http: httpx.Client) -> None:
    text = prompt("no keys")
    assert cached(http, CHAT, text, cache_salt="x") == 0
    assert cached(http, CHAT, text) == 0
    assert cached(http, CHAT, text, cache_salt="y") == 0
    assert cached(http, CHAT, text, cache_salt="x") >= BLOCK


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("salt", ["", "s" * 513, 5])
def test_what_is_no_cache_salt(http: httpx.Client, path: str, salt: Any) -> None:
    prompt_field = {"messages": [{"role": "user", "content": "a"}]} if path == CHAT else {"prompt": "a"}
    error = error_of(http.post(path, json={"model": "tiny-chat", "cache_salt": salt, **prompt_field}), 400)
    assert error["param"] == "cache_salt"
    assert error["message"].startswith("cache_salt must be a string")


def test_templates_of_clients_are_refused(http: httpx.Client) -> None:
    body = {"model": "tiny-chat", "messages": [{"role": "user", "content": "a"}], "chat_template": "{{ 7 * 7 }}"}
    error = error_of(http.post(CHAT, json=body), 400)
    assert (error["code"], error["param"]) == ("unsupported_field", "chat_template")
    assert "chat_template.jinja in its folder" in error["message"]


def test_the_engine_is_told_the_tenant(tiny_model: Path, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.toml", "alice", "acme")
    body = {"model": "tiny-chat", "prompt": ["Once", "The"], "max_tokens": 500, "ignore_eos": True}

    async def run() -> list[dict[str, Any]]:
        profile = load_profile(None, {"model.source": str(tiny_model), "backend.name": "reference"})
        engine = await AsyncEngine.start(profile)
        try:
            settings = ServerSettings(api_keys=ApiKeys(tmp_path / "keys.toml"))
            transport = httpx.ASGITransport(app=build_app(engine, settings))
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                request = client.post("/v1/completions", json=body, headers={"x-api-key": key})
                asking = asyncio.create_task(request)
                open_requests: list[dict[str, Any]] = []
                while len(open_requests) < 2 and not asking.done():
                    open_requests = (await engine.control("dump"))["open"]
                assert (await asking).status_code == 200
                return open_requests
        finally:
            await engine.close()

    assert [request["tenant"] for request in asyncio.run(run())] == ["acme", "acme"]


def test_salts() -> None:
    one, other = (Tenant.derived("acme", secret * 32) for secret in (b"a", b"b"))
    assert one == Tenant.derived("acme", b"a" * 32)  # after a restart too
    salts = {EVERYONE.salt(None), EVERYONE.salt("x"), one.salt(None), one.salt("x"), one.salt("y"), other.salt("x")}
    assert len(salts) == 6
    assert EVERYONE.salt(None) == ""
    assert "acme" not in one.cache_salt
