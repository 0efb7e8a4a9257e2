"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.core.sampling_params import SamplingParams
from forebay.server.anthropic.conversation import conversation, render
from forebay.server.anthropic.fields import COUNT_TOKENS_FIELDS, MESSAGES_FIELDS
from forebay.server.anthropic.parse import check_version, parse_body
from forebay.server.anthropic.requests import CountTokensBody, MessagesBody, OutputConfig, PromptBody
from forebay.server.anthropic.thinking import check_thinking, thinking_of
from forebay.server.anthropic.tools import PATHS, tool_request
from forebay.server.anthropic.wording import MessageWording
from forebay.server.body import read_json_body
from forebay.server.conversation import Asked, Face, converse
from forebay.server.naming import naming
from forebay.server.openai.answer import counting_refusals
from forebay.server.openai.messages import template_variables
from forebay.server.openai.parse import check_model
from forebay.server.openai.sampling import sampling_of
from forebay.server.openai.structured import json_text, structured_outputs, the_one
from forebay.server.reply import json_reply
from forebay.server.speech import BUDGET, Speech
from forebay.server.state import ServerState
from forebay.tokenizer import ChatPrompt

_NAMES = {"stop": "stop_sequences", BUDGET: "thinking", "reasoning_effort": "output_config.effort"}
MESSAGES = Face("msg_", names=_NAMES, paths=PATHS)


async def messages(state: ServerState, request: Request) -> Response:
    """Answer a conversation, whole or as server-sent events."""
    with counting_refusals(state):
        check_version(request)
    return await converse(state, request, MESSAGES, _read)


async def count_tokens(state: ServerState, request: Request) -> Response:
    """Tokens of the prompt that the same body makes of POST /v1/messages."""
    with naming(MESSAGES.names, paths=MESSAGES.paths), counting_refusals(state):
        check_version(request)
        body = await read_json_body(request, state.settings)
        return await asyncio.to_thread(_counted, state, body)  # a chat template can take long on any body


def _read(state: ServerState, raw: bytes) -> Asked:
    body = parse_body(raw, MessagesBody, MESSAGES_FIELDS)
    check_model(body.model, state.model_name)
    check_thinking(body.thinking, body.max_tokens)
    asked = sampling(body)
    prompt, speech = _prompt(state, body)
    return Asked(
        prompt,
        asked,
        speech,
        body.stream,
        lambda generation: MessageWording(generation.id, state.model_name),
        body.cache_salt,
    )


def _counted(state: ServerState, raw: bytes) -> Response:
    body = parse_body(raw, CountTokensBody, COUNT_TOKENS_FIELDS)
    check_model(body.model, state.model_name)
    check_thinking(body.thinking, None)
    prompt, _ = _prompt(state, body)
    return json_reply({"input_tokens": len(state.engine.tokenizer.encode(prompt, add_special_tokens=False))})


def _prompt(state: ServerState, body: PromptBody) -> tuple[ChatPrompt, Speech]:
    speaks, tokenizer = state.message_format, state.engine.tokenizer
    wants = tool_request(body)
    speaks.check(wants.choice)
    thinking = thinking_of(body.thinking, body.chat_template_kwargs, speaks, tokenizer)
    variables = template_variables(
        thinking.variables | body.chat_template_kwargs, body.output_config.effort, tokenizer.chat_template
    )
    prompt = render(tokenizer, conversation(body), wants.for_template(), **variables)
    return prompt, Speech(speaks, tokenizer, prompt.text, wants.choice, thinking.budget)


def sampling(body: MessagesBody) -> SamplingParams:
    """Errors name our fields, where they differ; see MESSAGES."""
    return sampling_of(
        body,
        the_one(_format(body.output_config), *structured_outputs(body)),
        max_tokens=body.max_tokens,
        stop=tuple(body.stop_sequences),
    )


def _format(config: OutputConfig) -> GrammarSpec | None:
    if config.format is None:
        return None
    source = json_text(config.format.schema)
    return GrammarSpec(kind=GrammarKind.JSON_SCHEMA, source=source, param="output_config.format.schema")
