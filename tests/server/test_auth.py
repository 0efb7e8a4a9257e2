"""API keys: what needs one, what is one, and what a server that asks for none refuses to do."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from forebay.engine.async_engine import AsyncEngine
from forebay.errors import SetupError
from forebay.profile import load_profile
from forebay.server.app import ROUTES, build_app
from forebay.server.auth import OPEN_PATHS, ApiKeys
from forebay.server.key_file import add_key, remove_key
from forebay.server.serve import bind, check_exposure
from forebay.server.state import ServerSettings
from tests.server.conftest import TINY_FLAGS, GuardedServer
from tests.server.test_http import error_of
from tests.server.test_lifecycle import run_serve
from tests.support.server_process import ServeCommand, running_server

PATHS = [(method, path.replace("{model:path}", "tiny-chat")) for method, path, *_ in ROUTES if path not in OPEN_PATHS]
HIDDEN = [  # FastAPI's own route, unknown ones, other methods, and ways to write an open path that is none
    ("GET", "/openapi.json"), ("HEAD", "/metrics"), ("OPTIONS", "/v1/models"), ("DELETE", "/v1/models/tiny-chat"),
    ("GET", "/"), ("GET", "/nothing"), ("GET", "/health/"), ("GET", "//health"), ("GET", "/HEALTH"),
    ("GET", "/health/../metrics"), ("GET", "/metrics?/health"), ("GET", "/metrics%2Fhealth"), ("GET", "/health%00"),
    ("GET", "/health/%2e%2e/metrics"), ("GET", "/health%2f..%2fmetrics"), ("GET", "/health;x"), ("GET", "/./health"),
    ("GET", "//metrics"), ("GET", "/metrics/"), ("GET", "/metrics#/health"), ("GET", "/health%0d%0aX:y"),
    ("GET", "http://x/metrics"), ("GET", "http://health/metrics"), ("OPTIONS", "*"), ("CONNECT", "/metrics"),
    ("TRACE", "/metrics"), ("POST", "/health"), ("OPTIONS", "/health"), ("DELETE", "/health"),
    ("PUT", "/v1/completions"), ("GET", "/%ff"),
    ("GET", "/docs"), ("GET", "/redoc"), ("GET", "/debug"), ("GET", "/favicon.ico"), ("GET", "/.well-known/x"),
]  # fmt: skip


def ask(server: ServeCommand, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """Status and everything that was answered; the path goes out as it is."""
    with socket.create_connection(server.address, timeout=60) as connection:
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", "Content-Length: 0"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.parametrize(("method", "path"), [*PATHS, *HIDDEN])
def test_every_path_but_health_needs_a_key(guarded: GuardedServer, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer fb-wrong"}):
        status, answer = ask(guarded.process, method, path, headers)
        assert status == 401
        assert b'www-authenticate: Bearer realm="forebay"' in answer
        assert b"x-request-id: " in answer
    status, _ = ask(guarded.process, method, path, {"X-Api-Key": guarded.keys["bob"]})
    assert status not in (401, 403, 500)


def test_health_needs_none(guarded: GuardedServer) -> None:
    assert frozenset({"/health"}) == OPEN_PATHS
    assert guarded.get("/health").json() == {"status": "ok"}
    assert guarded.get("/health", authorization="Bearer nonsense").status_code == 200
    for path in ("/%68ealth", "/health?x", "http://x/health"):  # the same path, written otherwise
        assert ask(guarded.process, "GET", path, {})[0] == 200


def test_the_error_is_openais(guarded: GuardedServer) -> None:
    error = error_of(guarded.get("/v1/models"), 401)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert "Authorization: Bearer KEY" in error["message"]
    with openai.OpenAI(base_url=f"{guarded.process.url}/v1", api_key="fb-wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
        client.api_key = guarded.keys["alice"]
        assert [model.id for model in client.models.list()] == ["tiny-chat"]
        made = client.completions.create(model="tiny-chat", prompt="Once", max_tokens=2, stream=True)
        assert [chunk.choices[0].finish_reason for chunk in made][-1] == "length"


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer {key}"},
        {"authorization": "bearer   {key}"},
        {"x_api_key": "{key}"},
        {"x_api_key": "{key}", "authorization": "Bearer {key}"},
        {"x_api_key": "{key}", "authorization": "Basic dXNlcjpwYXNz"},
    ],
)
def test_ways_to_send_a_key(guarded: GuardedServer, headers: dict[str, str]) -> None:
    sent = {name: value.format(key=guarded.keys["alice"]) for name, value in headers.items()}
    assert guarded.get("/v1/models", **sent).status_code == 200


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"authorization": "Bearer {key}x"}, "not valid"),
        ({"authorization": "Bearer {cut}"}, "not valid"),
        ({"authorization": "Bearer {digest}"}, "not valid"),  # what the file holds opens nothing
        ({"authorization": "Bearer {key} {key}"}, "not valid"),
        ({"authorization": "Bearer KEY\u00e4"}, "not valid"),
        ({"authorization": "{key}"}, "needs an API key"),
        ({"authorization": "Basic {key}"}, "needs an API key"),
        ({"authorization": "Bearer"}, "needs an API key"),
        ({"x_api_key": ""}, "needs an API key"),
        ({"api_key": "{key}"}, "needs an API key"),
        ({"cookie": "key={key}; x-api-key={key}"}, "needs an API key"),
        ({"proxy_authorization": "Bearer {key}"}, "needs an API key"),
        ({"authorization": "Bearer {key},{key}"}, "not valid"),
        ({"x_api_key": "{key}", "authorization": "Bearer other"}, "more than one API key"),
    ],
)
def test_what_is_no_key(guarded: GuardedServer, headers: dict[str, str], message: str) -> None:
    key = guarded.keys["alice"]
    values = {"key": key, "cut": key[:-1], "digest": hashlib.sha256(key.encode()).hexdigest()}
    sent = {name: value.format(**values).encode("latin-1") for name, value in headers.items()}
    named = {name.replace("_", "-"): value for name, value in sent.items()}
    response = httpx.get(f"{guarded.process.url}/v1/models", headers=named)
    assert message in error_of(response, 401)["message"]
    assert key not in response.text + str(response.headers)


def test_a_key_in_the_address_is_none(guarded: GuardedServer) -> None:
    """It would stand in the logs of every proxy."""
    key = guarded.keys["alice"]
    for path in (
        f"/v1/models?api_key={key}",
        f"/v1/models?key={key}",
        f"http://{key}@x/v1/models",
        f"/v1/models/{key}",
    ):
        status, answer = ask(guarded.process, "GET", path, {})
        assert status == 401
        assert key.encode() not in answer


def test_refusals_are_counted(guarded: GuardedServer) -> None:
    name = 'forebay_requests_refused_total{label="unauthorized"}'
    before = guarded.process.metric(name)
    guarded.get("/v1/models")
    guarded.get("/v1/models", x_api_key="fb-wrong")
    assert guarded.process.metric(name) == before + 2


def test_keys_are_written_nowhere(guarded: GuardedServer) -> None:
    wrong = "fb-a-wrong-key-that-somebody-tried"
    body = {"model": "tiny-chat", "prompt": "Once", "max_tokens": 2}
    with guarded.client("bob") as client:
        answers = [client.post("/v1/completions", json=body | extra) for extra in ({}, {"no_such_field": 1})]
        answers += [client.get("/nothing"), client.get("/metrics")]
        answers += [client.get("/version"), guarded.get("/ready", authorization=f"Bearer {wrong}")]
    shown = "".join(answer.text + str(answer.headers) for answer in answers)
    written = "".join(file.read_text() for file in (guarded.file, guarded.process.log, guarded.record))
    for key in (*guarded.keys.values(), wrong):
        assert key not in shown
        assert key not in written


def test_a_change_of_the_file_counts_at_once(guarded: GuardedServer) -> None:
    with pytest.raises(SetupError):
        remove_key(guarded.file, "mallory")
    key = add_key(guarded.file, "mallory", "acme")
    with httpx.Client(base_url=guarded.process.url, headers={"x-api-key": key}) as client:
        assert client.get("/v1/models").status_code == 200
        remove_key(guarded.file, "mallory")
        assert error_of(client.get("/v1/models"), 401)["code"] == "invalid_api_key"  # on the same connection
    with guarded.client("alice") as client:
        assert client.get("/v1/models").status_code == 200


def test_a_file_that_becomes_unusable_lets_nobody_in(guarded: GuardedServer) -> None:
    with guarded.client("alice") as client:
        guarded.file.chmod(0o644)
        try:
            assert error_of(client.get("/v1/models"), 503)["code"] == "unavailable"
            assert client.get("/health").status_code == 200
            log = guarded.process.log.read_text()
            assert f"{guarded.file} is open to other users (mode 644); run: chmod 600 {guarded.file}" in log
        finally:
            guarded.file.chmod(0o600)
        assert client.get("/v1/models").status_code == 200


def test_the_printed_curl_line_takes_a_key(guarded: GuardedServer) -> None:
    env = os.environ | {"API_KEY": guarded.keys["alice"]}
    command = ["bash", "-c", guarded.process.curl_line]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert '"chat.completion"' in done.stdout


def test_openapi_says_where_a_key_goes(guarded: GuardedServer, http: httpx.Client) -> None:
    with guarded.client("alice") as client:
        document = client.get("/openapi.json").json()
    assert document["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert set(document["components"]["securitySchemes"]) == {"bearer", "x-api-key"}
    assert document["paths"]["/health"]["get"]["security"] == []
    assert "security" not in document["paths"]["/ready"]["get"]
    assert "security" not in http.get("/openapi.json").json()


def test_a_stranger_does_not_learn_of_a_drain(tiny_model: Path, tmp_path: Path) -> None:
    add_key(tmp_path / "keys.toml", "alice", "acme")

    async def run() -> list[int]:
        profile = load_profile(None, {"model.source": str(tiny_model), "backend.name": "reference"})
        engine = await AsyncEngine.start(profile)
        try:
            gateway = build_app(engine, ServerSettings(api_keys=ApiKeys(tmp_path / "keys.toml")))
            gateway.state.draining = True
            transport = httpx.ASGITransport(app=gateway)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return [(await client.post("/v1/completions")).status_code, (await client.get("/ready")).status_code]
        finally:
            await engine.close()

    assert asyncio.run(run()) == [401, 401]


@contextlib.contextmanager
def bound(host: str) -> Iterator[socket.socket]:
    with contextlib.closing(bind(host, 0)) as listener:
        yield listener


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_needs_no_keys(host: str) -> None:
    with bound(host) as listener:
        check_exposure(listener, ServerSettings())


def test_other_machines_need_keys_or_an_explicit_no_auth(tmp_path: Path) -> None:
    add_key(tmp_path / "keys.toml", "alice", "acme")
    with bound("0.0.0.0") as listener:
        with pytest.raises(SetupError, match=r"0\.0\.0\.0.*--api-keys keys\.toml.*--no-auth"):
            check_exposure(listener, ServerSettings())
        check_exposure(listener, ServerSettings(no_auth=True))
        check_exposure(listener, ServerSettings(api_keys=ApiKeys(tmp_path / "keys.toml")))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "a.localhost", "127.0.0.1:8000", "127.1.2.3", "[::1]:80"])
def test_names_of_this_machine_need_no_keys(server: ServeCommand, host: str) -> None:
    assert httpx.get(f"{server.url}/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "x" * 999],
)
def test_a_page_whose_name_leads_here_reads_nothing(server: ServeCommand, guarded: GuardedServer, host: str) -> None:
    """DNS rebinding: for its browser such a page and this server are one."""
    message = error_of(httpx.get(f"{server.url}/v1/models", headers={"host": host}), 400)["message"]
    assert f"answers to localhost only, not to '{host[:100]}'; start it with --api-keys" in message
    with guarded.client("alice") as client:  # a page has no key
        assert client.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.fixture
def flags(tiny_model: Path) -> list[str]:
    return [str(tiny_model), *TINY_FLAGS, "--port", "0"]


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_public_address_without_keys_is_one_clear_line(flags: list[str]) -> None:
    said = one_line(run_serve(*flags, "--host", "0.0.0.0"))
    assert "forebay keys add keys.toml NAME" in said
    assert "--no-auth" in said


def test_no_auth_opens_a_public_address(flags: list[str], tmp_path: Path) -> None:
    with running_server([*flags[:-2], "--host", "0.0.0.0", "--no-auth"], tmp_path / "log") as server:
        assert httpx.get(f"{server.url}/v1/models", headers={"host": "any.example"}).status_code == 200
        assert "--no-auth: whoever can reach 0.0.0.0 can use this server" in server.log.read_text()


def test_a_key_file_that_cannot_be_used_is_one_clear_line(flags: list[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert f"cannot read {missing}: No such file" in one_line(run_serve(*flags, "--api-keys", str(missing)))
    file = tmp_path / "keys.toml"
    add_key(file, "alice", "acme")
    assert "contradict" in one_line(run_serve(*flags, "--api-keys", str(file), "--no-auth"))
    remove_key(file, "alice")
    assert "holds no API keys; add one with: forebay keys add" in one_line(run_serve(*flags, "--api-keys", str(file)))


def test_settings_contradict(tmp_path: Path) -> None:
    add_key(tmp_path / "keys.toml", "alice", "acme")
    keys: Any = ApiKeys(tmp_path / "keys.toml")
    with pytest.raises(SetupError, match="--no-auth and --api-keys"):
        ServerSettings(api_keys=keys, no_auth=True)
    with pytest.raises(SetupError, match="name the origins"):
        ServerSettings(api_keys=keys, cors_origins=("https://a.example", "*"))
    assert ServerSettings(cors_origins=("*",)).cors_origins == ("*",)
