"""POST /v1/embeddings: the official client, both encodings, every way to be wrong, and a client that goes away."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from forebay import LLM
from forebay.server.openai.embeddings import MAX_INPUTS
from tests.server.test_disconnect import assert_all_given_back, connect, hang_up, post
from tests.server.test_http import error_of
from tests.support.server_process import ServeCommand, eventually

MODEL = "tiny-chat"
TEXTS = ["Once upon a time", "The old dog", "Lily and Tom went to the park."]
HIDDEN_SIZE, CONTEXT = 64, 512


def embed(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/v1/embeddings", json={"model": MODEL, **body})


def test_the_official_client(client: openai.OpenAI, tiny_model: Path) -> None:
    """By default it asks for base64, and so it gets the very bits."""
    made = client.embeddings.create(model=MODEL, input=TEXTS, user="someone")
    assert (made.object, made.model) == ("list", MODEL)
    assert [(row.object, row.index) for row in made.data] == [("embedding", i) for i in range(len(TEXTS))]
    with LLM(tiny_model, **{"backend.name": "reference"}) as llm:
        wanted = llm.embed(TEXTS)
        counts = [len(llm.tokenizer.encode(text)) for text in TEXTS]
    np.testing.assert_allclose([row.embedding for row in made.data], wanted, rtol=0, atol=1e-5)
    assert (made.usage.prompt_tokens, made.usage.total_tokens) == (sum(counts), sum(counts))


def test_both_encodings_have_the_same_bits(http: httpx.Client) -> None:
    """One short input: the reference backend's last bits depend on the batch."""
    plain = embed(http, input=TEXTS[0]).json()
    coded = embed(http, input=TEXTS[0], encoding_format="base64").json()
    assert set(plain) == {"object", "data", "model", "usage"}
    for row, other in zip(plain["data"], coded["data"], strict=True):
        assert set(row) == set(other) == {"object", "index", "embedding"}
        decoded = np.frombuffer(base64.b64decode(other["embedding"]), "<f4")
        assert decoded.astype(np.float64).tolist() == row["embedding"]
    assert embed(http, input=TEXTS[0], encoding_format=None, dimensions=None, user=None).json() == plain


def test_input_shapes_agree(http: httpx.Client) -> None:
    ids = http.post("/tokenize", json={"prompt": TEXTS[0]}).json()["tokens"]
    shapes: list[Any] = [TEXTS[0], [TEXTS[0]], ids, [ids]]
    found = [embed(http, input=shape).json() for shape in shapes]
    assert all(one["usage"] == found[0]["usage"] for one in found)
    assert len({json.dumps(one["data"]) for one in found}) == 1


@pytest.mark.parametrize("dimensions", [1, 8, HIDDEN_SIZE])
def test_dimensions(client: openai.OpenAI, dimensions: int) -> None:
    whole = np.array(client.embeddings.create(model=MODEL, input=TEXTS[0]).data[0].embedding)
    some = np.array(client.embeddings.create(model=MODEL, input=TEXTS[0], dimensions=dimensions).data[0].embedding)
    first = whole[:dimensions]
    np.testing.assert_allclose(some, first / np.linalg.norm(first), rtol=0, atol=1e-6)


def test_as_many_inputs_as_are_allowed(http: httpx.Client) -> None:
    """Far more than run or wait at a time: they go through the queue few by few."""
    made = embed(http, input=[[1, 403 + i % 7] for i in range(MAX_INPUTS)], dimensions=2).json()
    rows = np.array([row["embedding"] for row in made["data"]])
    assert rows.shape == (MAX_INPUTS, 2)
    assert len({tuple(row) for row in rows[:7].round(3).tolist()}) == 7
    np.testing.assert_allclose(rows, rows[np.arange(MAX_INPUTS) % 7], rtol=0, atol=1e-5)
    assert made["usage"] == {"prompt_tokens": 2 * MAX_INPUTS, "total_tokens": 2 * MAX_INPUTS}


def test_an_input_may_fill_the_context(http: httpx.Client) -> None:
    assert embed(http, input=[403] * CONTEXT).status_code == 200


body__param__code__message = [
    ({}, "input", "invalid_value", "input is required"),
    ({"input": ""}, "input", "invalid_value", "an empty text has no embedding"),
    ({"input": []}, "input", "invalid_value", "input must not be an empty array"),
    ({"input": ["a", ""]}, "input[1]", "invalid_value", "an empty text has no embedding"),
    ({"input": [[]]}, "input", "invalid_value", "input must hold at least one token"),
    ({"input": [[1], []]}, "input[1]", "invalid_value", "input[1] must hold at least one token"),
    ({"input": 5}, "input", "invalid_value", "input must be a string or an array, got 5"),
    ({"input": ["a", 5]}, "input[1]", "invalid_value", "input[1] is 5, unlike input[0]"),
    ({"input": ["a", {}]}, "input[1]", "invalid_value", "input[1] must be"),
    ({"input": ["a"] * (MAX_INPUTS + 1)}, "input", "invalid_value", "send at most 2048"),
    ({"input": [1, 512]}, "input[1]", "invalid_value", "input[1] must be a token id from 0 to 511, got 512"),
    ({"input": [[1], [-1]]}, "input[1][0]", "invalid_value", "from 0 to 511, got -1"),
    ({"input": [1] * 513}, "input", "context_length_exceeded", "has 513 tokens and the context length is 512"),
    ({"input": ["a", "word " * 600]}, "input[1]", "context_length_exceeded", "to 512 tokens or fewer"),
    ({"input": "word " * 40_000}, "input", "context_length_exceeded", "at least"),
    ({"input": "a", "dimensions": 0}, "dimensions", "invalid_value", "an integer from 1 to 64"),
    ({"input": "a", "dimensions": 65}, "dimensions", "invalid_value", "size of this model's hidden state, got 65"),
    ({"input": "a", "dimensions": 1.5}, "dimensions", "invalid_value", "dimensions must be an integer, got 1.5"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", "invalid_value", 'float or base64, got "hex"'),
    ({"input": "a", "encoding_format": 1}, "encoding_format", "invalid_value", "must be a string, got 1"),
    ({"input": "a", "user": 5}, "user", "invalid_value", "user must be a string, got 5"),
    ({"input": "a", "dimension": 8}, "dimension", "unknown_field", "did you mean 'dimensions'?"),
]


@pytest.mark.parametrize(("body", "param", "code", "message"), body__param__code__message)
def test_wrong_bodies(http: httpx.Client, body: dict[str, Any], param: str, code: str, message: str) -> None:
    error = error_of(embed(http, **body), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert message in error["message"]


def test_another_model(http: httpx.Client) -> None:
    assert error_of(embed(http, input="a", model="gpt-5"), 404)["param"] == "model"


def test_a_client_that_goes_away(server: ServeCommand) -> None:
    """What it asked for is aborted, and every block comes back."""
    before = server.metric('forebay_requests_finished_total{reason="abort"}')
    connection = connect(server)
    unlike = [[403 + i, *[403] * (CONTEXT - 1)] for i in range(100)]  # in no cache, so that each takes its time
    connection.sendall(post({"model": MODEL, "input": unlike}, "/v1/embeddings"))
    assert eventually(lambda: server.metric('forebay_blocks{state="used"}') > 0)
    hang_up(connection)
    assert eventually(lambda: server.metric('forebay_requests_finished_total{reason="abort"}') > before)
    assert_all_given_back(server, server.metric('forebay_requests_finished_total{reason="abort"}'))
