"""Typed requests of the Messages API. Messages and blocks keep their JSON form until `parse` has read each."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.server.openai.requests import Int64, ShortText


class CacheControl(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    ttl: str = "5m"


class UserMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user_id: ShortText | None = None


class TextBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    text: str
    cache_control: CacheControl | None = None


class InputMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: str
    content: str | list[dict[str, Any]]


class CountTokensBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages/count_tokens: what makes the prompt."""

    model: str
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] = ""
    cache_control: CacheControl | None = None


class MessagesBody(CountTokensBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/messages."""

    max_tokens: Int64
    stop_sequences: list[str] = msgspec.field(default_factory=list)
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: Int64 = 0
    stream: bool = False
    seed: Int64 | None = None
    min_p: float = 0.0
    ignore_eos: bool = False
    metadata: UserMetadata | None = None
