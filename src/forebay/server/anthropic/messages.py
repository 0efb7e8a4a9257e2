"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from forebay.core.sampling_params import SamplingParams
from forebay.server.anthropic.fields import COUNT_TOKENS_FIELDS, MESSAGES_FIELDS
from forebay.server.anthropic.parse import check_version, conversation, parse_body, render
from forebay.server.anthropic.requests import CountTokensBody, MessagesBody
from forebay.server.anthropic.wording import MessageWording
from forebay.server.body import read_json_body
from forebay.server.conversation import Asked, Face, converse
from forebay.server.openai.answer import counting_refusals
from forebay.server.openai.parse import check_model
from forebay.server.reply import json_reply
from forebay.server.speech import Speech
from forebay.server.state import ServerState
from forebay.structured.tools.request import NO_TOOLS

MESSAGES = Face("msg_", names={"stop": "stop_sequences"})


async def messages(state: ServerState, request: Request) -> Response:
    """Answer a conversation, whole or as server-sent events."""
    with counting_refusals(state):
        check_version(request)
    return await converse(state, request, MESSAGES, _read)


async def count_tokens(state: ServerState, request: Request) -> Response:
    """Tokens of the prompt that the same body makes of POST /v1/messages."""
    with counting_refusals(state):
        check_version(request)
        body = await read_json_body(request, state.settings)
        return await asyncio.to_thread(_counted, state, body)  # a chat template can take long on any body


def _read(state: ServerState, raw: bytes) -> Asked:
    body = parse_body(raw, MessagesBody, MESSAGES_FIELDS)
    check_model(body.model, state.model_name)
    sampling = SamplingParams(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=body.seed,
        stop=tuple(body.stop_sequences),
        ignore_eos=body.ignore_eos,
    )
    prompt = render(state.engine.tokenizer, conversation(body))
    speech = Speech(state.message_format, state.engine.tokenizer, prompt.text, NO_TOOLS)
    return Asked(
        prompt, sampling, speech, body.stream, lambda generation: MessageWording(generation.id, state.model_name)
    )


def _counted(state: ServerState, raw: bytes) -> Response:
    body = parse_body(raw, CountTokensBody, COUNT_TOKENS_FIELDS)
    check_model(body.model, state.model_name)
    tokenizer = state.engine.tokenizer
    ids = tokenizer.encode(render(tokenizer, conversation(body)), add_special_tokens=False)
    return json_reply({"input_tokens": len(ids)})
