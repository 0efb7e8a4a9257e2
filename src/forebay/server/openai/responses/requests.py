"""Typed requests of the Responses API. Input items keep their JSON form until `parse` has read each."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forebay.server.openai.requests import Int64, Metadata, ShortText


class InputBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes the prompt. `text` holds nothing any more once it has been checked."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    text: dict[str, Any] | None = None


class InputTokensBody(InputBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/responses/input_tokens."""

    model: str | None = None


class ResponseBody(InputBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/responses. `stream_options` holds nothing any more once it has been checked."""

    model: str
    max_output_tokens: Int64 | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: Int64 = 0
    min_p: float = 0.0
    ignore_eos: bool = False
    seed: Int64 | None = None
    include: list[str] = msgspec.field(default_factory=list)
    top_logprobs: Int64 = 0
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    metadata: Metadata = msgspec.field(default_factory=dict)
    user: ShortText | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_key: ShortText | None = None


class InputItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message: of the client's, or an output message sent back."""

    role: str
    content: str | list[dict[str, Any]]
    type: str = "message"
    id: ShortText | None = None
    status: ShortText | None = None


class TextPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    text: str
    annotations: list[Any] = msgspec.field(default_factory=list)
    logprobs: list[Any] = msgspec.field(default_factory=list)
