"""CORS: off by default, for named origins, without credentials; a preflight needs no key and gives none away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from forebay.errors import SetupError
from forebay.server.cors import parse_origins
from forebay.server.key_file import add_key
from tests.server.conftest import TINY_FLAGS, GuardedServer
from tests.server.test_http import error_of
from tests.support.server_process import running_server

PAGE, LOCAL, STRANGER = "https://chat.example.com", "http://localhost:3000", "https://evil.example.com"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


def cors_of(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


@pytest.fixture(scope="module")
def open_to_pages(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    folder = tmp_path_factory.mktemp("cors")
    file = folder / "keys.toml"
    keys = {"alice": add_key(file, "alice", "acme")}
    flags = [*TINY_FLAGS, "--api-keys", str(file), "--cors-origin", PAGE, "--cors-origin", LOCAL]
    with running_server([str(tiny_model), *flags], folder / "log", {"x-api-key": keys["alice"]}) as process:
        yield GuardedServer(process, file, folder / "none", keys)


@pytest.mark.parametrize("origin", [PAGE, LOCAL])
def test_a_page_of_a_named_origin_may_call(open_to_pages: GuardedServer, origin: str) -> None:
    url = open_to_pages.process.url
    preflight = httpx.options(f"{url}/v1/chat/completions", headers=PREFLIGHT | {"origin": origin})
    assert preflight.status_code == 204
    assert cors_of(preflight) == {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "600",
    }
    assert "Origin" in preflight.headers["vary"]
    with open_to_pages.client("alice") as client:
        answer = client.get("/v1/models", headers={"origin": origin})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert answer.headers["vary"] == "Origin"


def test_a_page_can_read_that_it_needs_a_key(open_to_pages: GuardedServer) -> None:
    answer = open_to_pages.get("/v1/models", origin=PAGE)
    assert error_of(answer, 401)["code"] == "invalid_api_key"
    assert answer.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("origin", [STRANGER, "https://chat.example.com.evil.com", "http://chat.example.com", "null"])
def test_a_page_of_another_origin_may_not(open_to_pages: GuardedServer, origin: str) -> None:
    url = open_to_pages.process.url
    preflight = httpx.options(f"{url}/v1/chat/completions", headers=PREFLIGHT | {"origin": origin})
    assert "--cors-origin" in error_of(preflight, 400)["message"]
    assert cors_of(preflight) == {}
    with open_to_pages.client("alice") as client:
        answer = client.get("/v1/models", headers={"origin": origin})
    assert cors_of(answer) == {}
    assert answer.headers["vary"] == "Origin"  # a cache must not give this answer to the other pages


def test_only_a_real_preflight_passes_without_a_key(open_to_pages: GuardedServer) -> None:
    url = f"{open_to_pages.process.url}/v1/models"
    assert httpx.options(url).status_code == 401
    assert httpx.options(url, headers={"origin": PAGE}).status_code == 401
    assert httpx.get(url, headers=PREFLIGHT | {"origin": PAGE}).status_code == 401


def test_credentials_are_never_allowed(open_to_pages: GuardedServer) -> None:
    url = open_to_pages.process.url
    for answer in (
        httpx.options(f"{url}/v1/models", headers=PREFLIGHT | {"origin": PAGE}),
        httpx.get(f"{url}/health", headers={"origin": PAGE, "cookie": "a=b"}),
    ):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "access-control-allow-credentials" not in answer.headers


def test_without_the_flag_there_is_no_cors(http: httpx.Client) -> None:
    preflight = http.options("/v1/models", headers=PREFLIGHT | {"origin": PAGE})
    assert preflight.status_code == 405
    for answer in (preflight, http.get("/v1/models", headers={"origin": PAGE})):
        assert cors_of(answer) == {}
        assert "vary" not in answer.headers


def test_without_keys_every_page_may_be_allowed(tiny_model: Path, tmp_path: Path) -> None:
    with running_server([str(tiny_model), *TINY_FLAGS, "--cors-origin", "*"], tmp_path / "log") as server:
        answer = httpx.get(f"{server.url}/v1/models", headers={"origin": STRANGER})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "vary" not in answer.headers


def test_origins() -> None:
    good = ("https://a.example", "http://localhost:3000", "http://[::1]:8080", "tauri://localhost", "*")
    assert parse_origins(good) == good


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("a.example", "SCHEME://HOST"),
        ("https://a.example/", "without a path"),
        ("https://A.example", "in lower case"),
        ("https://*.a.example", "SCHEME://HOST"),
        ("https://user@a.example", "SCHEME://HOST"),
        ("null", "SCHEME://HOST"),
        ("", "SCHEME://HOST"),
        ("https://a.example:443", "leave out the default port; give https://a.example"),
        ("http://a.example:80", "leave out the default port; give http://a.example"),
    ],
)
def test_what_is_no_origin(origin: str, message: str) -> None:
    with pytest.raises(SetupError, match=message.replace("*", r"\*")) as caught:
        parse_origins([origin])
    assert caught.value.param == "cors_origin"
