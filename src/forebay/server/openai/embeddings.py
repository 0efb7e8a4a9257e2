"""POST /v1/embeddings: the final hidden state of each input's last token, of length 1."""

from __future__ import annotations

import base64
import secrets
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forebay.core.messages import AddRequest
from forebay.engine.embedding import check_dimensions, embedding
from forebay.errors import ContextLengthError, InvalidValueError
from forebay.server.body import LONG_BODY, off_loop, read_json_body
from forebay.server.openai.answer import counting_refusals
from forebay.server.openai.fields import EMBEDDING_FIELDS
from forebay.server.openai.parse import check_model, check_token_ids, parse, prompt_list, shorten
from forebay.server.openai.requests import EmbeddingBody
from forebay.server.state import ServerState
from forebay.server.streaming import AnswerResponse
from forebay.server.tenants import tenant_of

MAX_INPUTS = 2048  # of one HTTP request, as in OpenAI's document
ENCODINGS = ("float", "base64")


class _Read(NamedTuple):
    """All that a body says."""

    inputs: list[str | list[int]]
    dimensions: int
    encoding: str


async def embeddings(state: ServerState, request: Request) -> Response:
    """An embedding of each input, in their order."""
    received_ns = state.engine.now_ns()
    with counting_refusals(state):
        body = await read_json_body(request, state.settings)
        read = await off_loop(lambda: _read(state, body), long=len(body) > LONG_BODY)
    tenant = tenant_of(request)
    requests = await state.engine.prepare_hidden(
        read.inputs,
        field="input",
        request_id=f"embd-{secrets.token_hex(16)}",
        tenant=tenant.name,
        cache_salt=tenant.salt(None),
        received_ns=received_ns,
    )

    async def answer() -> bytes:
        hidden = await state.engine.hidden_states(requests)
        size = 4 * read.dimensions * len(hidden)
        return await off_loop(lambda: _answer(state, read, requests, hidden), long=size > LONG_BODY)

    return AnswerResponse(answer, {})


def _read(state: ServerState, raw: bytes) -> _Read:
    body = parse(raw, EmbeddingBody, EMBEDDING_FIELDS)
    check_model(body.model, state.model_name)
    if body.encoding_format not in ENCODINGS:
        raise InvalidValueError(
            f"encoding_format must be {' or '.join(ENCODINGS)}, got {shorten(body.encoding_format)}",
            param="encoding_format",
        )
    dimensions = check_dimensions(body.dimensions, state.engine.info.hidden_size)
    return _Read(_inputs(state, body.input), dimensions, body.encoding_format)


def _inputs(state: ServerState, given: str | list[str | int | list[int]]) -> list[str | list[int]]:
    inputs = prompt_list(given, "input")
    if len(inputs) > MAX_INPUTS:
        raise InvalidValueError(
            f"input has {len(inputs)} entries; send at most {MAX_INPUTS} in one request", param="input"
        )
    info = state.engine.info
    vocab_size = min(state.engine.tokenizer.vocab_size, info.vocab_size)
    for i, item in enumerate(inputs):
        path = "input" if len(inputs) == 1 else f"input[{i}]"
        if isinstance(item, str):
            continue  # the engine's to check: it takes a tokenizer
        if len(item) > info.max_model_len:  # before anything looks at each of a million ids
            raise ContextLengthError(
                f"{path} has {len(item)} tokens and the context length is {info.max_model_len}: shorten it to "
                f"{info.max_model_len} or fewer",
                param=path,
            )
        check_token_ids(item, vocab_size, path)
    return inputs


def _answer(state: ServerState, read: _Read, requests: list[AddRequest], hidden: list[bytes]) -> bytes:
    """The body of the response."""
    num_tokens = sum(len(request.prompt_token_ids) for request in requests)
    return msgspec.json.encode(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": i, "embedding": _encoded(row, read)} for i, row in enumerate(hidden)
            ],
            "model": state.model_name,
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }
    )


def _encoded(hidden: bytes, read: _Read) -> Any:
    vector = embedding(hidden, read.dimensions)
    if read.encoding == "float":
        return vector.tolist()
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
