"""POST /v1/responses and /v1/responses/input_tokens, and the routes of stored responses, of which there are none."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from forebay.errors import NotFoundError
from forebay.server.body import read_json_body
from forebay.server.conversation import Asked, Face, converse
from forebay.server.naming import naming
from forebay.server.openai.answer import counting_refusals
from forebay.server.openai.parse import check_model, shorten
from forebay.server.openai.responses.parse import (
    conversation,
    parse_body,
    parse_input_tokens_body,
    sampling,
)
from forebay.server.openai.responses.wording import ResponseWording
from forebay.server.reply import json_reply
from forebay.server.speech import Speech
from forebay.server.state import ServerState
from forebay.structured.tools.request import NO_TOOLS

RESPONSES = Face("resp_", conversation="input", names={"max_tokens": "max_output_tokens", "messages": "input"})


async def create_response(state: ServerState, request: Request) -> Response:
    """Answer a conversation, whole or as server-sent events. Nothing is stored."""
    return await converse(state, request, RESPONSES, _read)


async def input_tokens(state: ServerState, request: Request) -> Response:
    """Tokens of the prompt that the same body makes of POST /v1/responses."""
    with naming(RESPONSES.names), counting_refusals(state):
        body = await read_json_body(request, state.settings)
        return await asyncio.to_thread(_counted, state, body)  # a chat template can take long on any body


async def compact(state: ServerState, request: Request) -> Response:
    """Raises NotFoundError: no summary of a conversation is made."""
    raise NotFoundError("compaction is not implemented; send the conversation, or what you keep of it, as input")


async def stored_response(state: ServerState, request: Request) -> Response:
    """Raises NotFoundError: responses are not stored."""
    given = shorten(request.path_params["response_id"])
    raise NotFoundError(
        f"response {given} is not here: responses are not stored (store is false in each); keep what "
        "POST /v1/responses answers",
        param="response_id",
    )


def _counted(state: ServerState, raw: bytes) -> Response:
    body = parse_input_tokens_body(raw)
    check_model(body.model, state.model_name)
    tokenizer = state.engine.tokenizer
    ids = tokenizer.encode_chat(conversation(body))
    return json_reply({"object": "response.input_tokens", "input_tokens": len(ids)})


def _read(state: ServerState, raw: bytes) -> Asked:
    body = parse_body(raw)
    check_model(body.model, state.model_name)
    prompt = state.engine.tokenizer.chat_prompt(conversation(body))
    speech = Speech(state.message_format, state.engine.tokenizer, prompt.text, NO_TOOLS)
    return Asked(
        prompt, sampling(body), speech, body.stream, lambda generation: ResponseWording(state, generation, body)
    )
