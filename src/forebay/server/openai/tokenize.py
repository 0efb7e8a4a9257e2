"""POST /tokenize and /detokenize: what the model sees of a text, and back."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay.errors import InvalidValueError
from forebay.server.body import LONG_BODY, off_loop, read_json_body
from forebay.server.openai.messages import parse_messages, render
from forebay.server.openai.parse import check_model, check_token_ids, parse
from forebay.server.openai.requests import DetokenizeBody, TokenizeBody
from forebay.server.reply import json_reply
from forebay.server.state import ServerState
from forebay.structured.tools.request import parse_tool_request

# The tokenizer would take seconds for many more, and hold up every other request meanwhile.
MAX_TEXT = 2**20  # characters
_OF_TEMPLATE: dict[str, Any] = {
    "tools": None,
    "reasoning_effort": None,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "chat_template_kwargs": {},
}
MAX_TOKENS = 2**17


async def tokenize(state: ServerState, request: Request) -> Response:
    """Token ids of `prompt`, or of `messages` through the chat template."""
    body = await read_json_body(request, state.settings)
    return await asyncio.to_thread(_tokenized, state, body)  # a chat template can take long on any body


async def detokenize(state: ServerState, request: Request) -> Response:
    """The text of token ids."""
    body = await read_json_body(request, state.settings)
    return await off_loop(lambda: _detokenized(state, body), long=len(body) > LONG_BODY)


def _tokenized(state: ServerState, raw: bytes) -> Response:
    body = parse(raw, TokenizeBody)
    check_model(body.model, state.model_name)
    tokenizer = state.engine.tokenizer
    if body.prompt is not None and body.messages is None:
        _check_plain(body)
        _check_length(len(body.prompt), MAX_TEXT, "characters", "prompt")
        ids = tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens)
    elif body.messages is not None and body.prompt is None:
        prompt = render(tokenizer, parse_messages(body.messages), body, parse_tool_request(body.tools, None))
        _check_length(len(prompt.text), MAX_TEXT, "characters", "messages")
        ids = tokenizer.encode(prompt, add_special_tokens=False)  # the template has written them
    else:
        raise InvalidValueError("give either prompt or messages", param="prompt")
    return json_reply({"tokens": ids, "count": len(ids), "max_model_len": state.engine.info.max_model_len})


def _check_length(length: int, limit: int, unit: str, field: str) -> None:
    if length > limit:
        raise InvalidValueError(f"{field} has {length} {unit} and may have {limit} here; send parts", param=field)


def _check_plain(body: TokenizeBody) -> None:
    """A prompt goes through no template."""
    for name, neutral in _OF_TEMPLATE.items():
        if getattr(body, name) != neutral:
            raise InvalidValueError(f"{name} is for messages, and there is a prompt; remove one of them", param=name)


def _detokenized(state: ServerState, raw: bytes) -> Response:
    body = parse(raw, DetokenizeBody)
    check_model(body.model, state.model_name)
    tokenizer = state.engine.tokenizer
    _check_length(len(body.tokens), MAX_TOKENS, "token ids", "tokens")
    if body.tokens:
        check_token_ids(body.tokens, tokenizer.vocab_size, "tokens")
    return json_reply({"prompt": tokenizer.decode(body.tokens, skip_special_tokens=body.skip_special_tokens)})
