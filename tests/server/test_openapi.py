"""Random requests made from our own OpenAPI document: no 5xx, and every refusal has OpenAI's shape."""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from forebay.server.app import ROUTES
from forebay.server.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS
from tests.support.server_process import ServeCommand, eventually

schemathesis: Any = pytest.importorskip("schemathesis")

EXAMPLES = int(os.environ.get("FOREBAY_TEST_OPENAPI", "25"))  # of each operation, that fit its schema and that do not
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def document(http: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def api(document: dict[str, Any]) -> Any:
    """The document, held to the served model, its vocabulary and short answers, so that bodies get far."""
    small = {"type": "integer", "minimum": 0, "maximum": 4}
    for body in ("CompletionBody", "ChatBody", "TokenizeBody", "DetokenizeBody"):
        schema = document["components"]["schemas"][body]
        properties = schema["properties"]
        properties["model"] = {"const": "tiny-chat"}
        for name in {"max_tokens", "max_completion_tokens", "n", "best_of", "min_tokens"} & set(properties):
            properties[name] = small
        if "max_tokens" in properties:
            schema["required"].append("max_tokens")
            properties["n"] = {"const": 2}
        if "tokens" in properties:
            properties["tokens"]["items"] = {"type": "integer", "minimum": 0, "maximum": 511}
    return schemathesis.openapi.from_dict(document)


def test_every_field_of_the_tables_is_described(http: httpx.Client) -> None:
    schemas = http.get("/openapi.json").json()["components"]["schemas"]
    for name, table in (("CompletionBody", COMPLETION_FIELDS), ("ChatBody", CHAT_FIELDS)):
        assert set(schemas[name]["properties"]) == set(table)
        assert all(field.why in schemas[name]["properties"][key]["description"] for key, field in table.items())


CASES = [(method, path, "positive") for method, path, *_ in ROUTES]
CASES += [(method, path, "negative") for method, path, _, body, _ in ROUTES if body is not None]


@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_no_request_is_answered_with_a_fault(server: ServeCommand, api: Any, method: str, path: str, mode: str) -> None:
    operation = api[path.replace(":path", "")][method]

    @SETTINGS
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def run(case: Any) -> None:
        response = case.call(base_url=server.url, timeout=30)
        assert response.status_code < 500, response.text
        if response.status_code >= 400:
            if path.startswith("/v1/messages"):
                assert {"type", "error"} <= set(response.json())
                assert set(response.json()["error"]) == {"type", "message"}
            else:
                assert set(response.json()) == {"error"}
                assert set(response.json()["error"]) == {"message", "type", "param", "code"}

    run()


def test_nothing_is_left(server: ServeCommand) -> None:
    assert eventually(lambda: server.metric('forebay_blocks{state="used"}') == 0)
    assert "Traceback" not in server.log.read_text()
