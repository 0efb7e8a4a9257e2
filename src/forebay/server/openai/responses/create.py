"""POST /v1/responses and /v1/responses/input_tokens, and the routes of stored responses, of which there are none."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from forebay.errors import NotFoundError, UnsupportedFieldError
from forebay.server.body import read_json_body
from forebay.server.conversation import Asked, Face, converse
from forebay.server.naming import naming
from forebay.server.openai.answer import counting_refusals
from forebay.server.openai.messages import template_variables
from forebay.server.openai.parse import check_model, shorten
from forebay.server.openai.responses.conversation import conversation
from forebay.server.openai.responses.parse import asks_for_logprobs, parse_body, parse_input_tokens_body, sampling
from forebay.server.openai.responses.requests import PromptBody, ResponseBody
from forebay.server.openai.responses.tools import PATHS, tool_request
from forebay.server.openai.responses.wording import ResponseWording
from forebay.server.reply import json_reply
from forebay.server.speech import Speech
from forebay.server.state import ServerState
from forebay.structured.tools.request import ToolChoice
from forebay.tokenizer import ChatPrompt

_NAMES = {"max_tokens": "max_output_tokens", "messages": "input", "reasoning_effort": "reasoning.effort"}
RESPONSES = Face("resp_", conversation="input", names=_NAMES, paths=PATHS)


async def create_response(state: ServerState, request: Request) -> Response:
    """Answer a conversation, whole or as server-sent events. Nothing is stored."""
    return await converse(state, request, RESPONSES, _read)


async def input_tokens(state: ServerState, request: Request) -> Response:
    """Tokens of the prompt that the same body makes of POST /v1/responses."""
    with naming(RESPONSES.names, paths=RESPONSES.paths), counting_refusals(state):
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
    prompt, _ = _prompt(state, body)
    ids = state.engine.tokenizer.encode(prompt, add_special_tokens=False)
    return json_reply({"object": "response.input_tokens", "input_tokens": len(ids)})


def _read(state: ServerState, raw: bytes) -> Asked:
    body = parse_body(raw)
    check_model(body.model, state.model_name)
    asked = sampling(body)
    prompt, choice = _prompt(state, body)
    _check_logprobs(state, body, choice)
    speech = Speech(state.message_format, state.engine.tokenizer, prompt.text, choice, body.thinking_token_budget)
    return Asked(
        prompt,
        asked,
        speech,
        body.stream,
        lambda generation: ResponseWording(state, generation, body),
        body.cache_salt,
    )


def _prompt(state: ServerState, body: PromptBody) -> tuple[ChatPrompt, ToolChoice]:
    wants = tool_request(body)
    state.message_format.check(wants.choice)
    tokenizer = state.engine.tokenizer
    prompt = tokenizer.chat_prompt(
        conversation(body),
        tools=wants.for_template(),
        **template_variables(body.chat_template_kwargs, body.reasoning.effort, tokenizer.chat_template),
    )
    return prompt, wants.choice


def _check_logprobs(state: ServerState, body: ResponseBody, choice: ToolChoice) -> None:
    """They belong to the text of a message, and a token may be part of a call or of its markers."""
    tools = state.message_format.tools
    if asks_for_logprobs(body) and (choice.callable_tools or (tools is not None and tools.channels)):
        field = "top_logprobs" if body.top_logprobs else "include"
        beside = "tools" if choice.callable_tools else "the channels of this model"
        raise UnsupportedFieldError(
            f"{field} is not supported beside {beside}: log-probabilities belong to the text of a message; leave it "
            "out, or use chat completions",
            param=field,
        )
