"""Typed requests of the Responses API. Input items and tools keep their JSON form until each has been read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forebay.server.openai.requests import Budget, Int64, Metadata, SamplingBody, ShortText

CallId = Annotated[str, Meta(min_length=1, max_length=512)]
FunctionName = Annotated[str, Meta(min_length=1, max_length=64)]


class TextConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: dict[str, Any] | None = None


class ReasoningConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    effort: str | None = None


class InputTokensBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/responses/input_tokens: what makes the prompt."""

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    text: TextConfig = TextConfig()
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning: ReasoningConfig = ReasoningConfig()
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)


class ResponseBody(SamplingBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/responses: the same fields, and how to answer. `stream_options` is empty once it has been checked."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    text: TextConfig = TextConfig()
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning: ReasoningConfig = ReasoningConfig()
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    max_output_tokens: Int64 | None = None
    thinking_token_budget: Budget | None = None
    stop: str | list[str] = msgspec.field(default_factory=list)
    include: list[str] = msgspec.field(default_factory=list)
    top_logprobs: Int64 = 0
    stream_options: dict[str, Any] | None = None
    metadata: Metadata = msgspec.field(default_factory=dict)
    user: ShortText | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_key: ShortText | None = None


PromptBody = InputTokensBody | ResponseBody


class TextFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`text.format`, but for what only a schema has."""

    type: str


class InputItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message: of the client's, or an output message sent back."""

    role: str
    content: str | list[dict[str, Any]]
    type: str = "message"
    id: ShortText | None = None
    status: ShortText | None = None


class CallItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    call_id: CallId
    name: FunctionName
    arguments: str
    id: ShortText | None = None
    status: ShortText | None = None


class OutputItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of a call."""

    type: str
    call_id: CallId
    output: str | list[dict[str, Any]]
    name: ShortText | None = None
    id: ShortText | None = None
    status: ShortText | None = None


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    content: list[dict[str, Any]] = []
    id: ShortText | None = None
    status: ShortText | None = None


class TextPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    text: str
    annotations: list[Any] = msgspec.field(default_factory=list)
    logprobs: list[Any] = msgspec.field(default_factory=list)


class ReasoningPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    text: str


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    name: str
    description: str | None = None
    parameters: dict[str, Any] = {}
    strict: bool = False
