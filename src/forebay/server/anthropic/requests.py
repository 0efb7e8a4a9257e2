"""Typed requests of the Messages API. Messages, blocks and tools keep their JSON form until each has been read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forebay.server.openai.requests import Int64, SamplingBody, ShortText

ToolId = Annotated[str, Meta(min_length=1, max_length=512)]
ToolName = Annotated[str, Meta(min_length=1, max_length=64)]


class CacheControl(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    ttl: str = "5m"


class UserMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user_id: ShortText | None = None


class TextBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    text: str
    cache_control: CacheControl | None = None


class ThinkingBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    id: ToolId
    name: ToolName
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ToolResultBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    tool_use_id: ToolId
    content: str | list[dict[str, Any]] = ""
    is_error: bool = False
    cache_control: CacheControl | None = None


class InputMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: str
    content: str | list[dict[str, Any]]


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    input_schema: dict[str, Any]
    type: str = "custom"
    description: str | None = None
    strict: bool = False
    cache_control: CacheControl | None = None


class ToolChoiceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool = False


class ThinkingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    budget_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    effort: str | None = None
    format: OutputFormat | None = None


class CountTokensBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages/count_tokens: what makes the prompt."""

    model: str
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] = ""
    cache_control: CacheControl | None = None
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    tool_choice: ToolChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig = OutputConfig()
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)


class MessagesBody(SamplingBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages: the same fields, and how to answer."""

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] = ""
    cache_control: CacheControl | None = None
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    tool_choice: ToolChoiceBody | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig = OutputConfig()
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    max_tokens: Int64
    stop_sequences: list[str] = msgspec.field(default_factory=list)
    metadata: UserMetadata | None = None


PromptBody = CountTokensBody | MessagesBody
