"""Typed requests: what is left of a body once parsing has succeeded. Nothing downstream checks them again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Budget = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ShortText = Annotated[str, Meta(max_length=512)]


def _shown_as(name: str) -> Meta:
    """In the OpenAPI document, the schema of a struct of this module that is made field by field, not in one go."""
    return Meta(extra_json_schema={"$ref": f"#/components/schemas/{name}"})


Metadata = Annotated[dict[Annotated[str, Meta(max_length=64)], ShortText], Meta(max_length=16)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    include_usage: bool = False


class SamplingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that every face has under one name."""

    model: str
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: Int64 = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[str, float] = {}
    allowed_token_ids: list[Int64] | None = None
    bad_token_ids: list[Int64] = []
    min_tokens: Int64 = 0
    ignore_eos: bool = False
    structured_outputs: dict[str, Any] | None = None
    stop_token_ids: list[Int64] = []
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    seed: Int64 | None = None
    stream: bool = False
    cache_salt: Annotated[str, Meta(min_length=1, max_length=512)] | None = None


class _GenerationBody(SamplingBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields completions and chat completions share."""

    max_tokens: Int64 | None = None
    response_format: Annotated[dict[str, Any], _shown_as("ResponseFormat")] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    stop: str | list[str] = msgspec.field(default_factory=list)
    n: Int64 = 1
    stream_options: StreamOptions | None = None
    user: ShortText | None = None


class CompletionBody(_GenerationBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/completions. `prompt`: a string, strings, token ids, or lists of token ids."""

    prompt: str | list[str | int | list[int]]
    logprobs: Int64 | None = None
    best_of: Int64 | None = None
    echo: bool = False


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`response_format`."""

    type: str
    json_schema: Annotated[dict[str, Any], _shown_as("JsonSchemaFormat")] | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`response_format.json_schema`."""

    name: str
    schema: dict[str, Any] = {}
    description: str | None = None
    strict: bool = False


class TextPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    text: str


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: str
    content: str | list[Annotated[dict[str, Any], _shown_as("TextPart")]] | None = None
    name: ShortText | None = None
    tool_calls: list[dict[str, Any]] = []
    tool_call_id: ShortText | None = None
    reasoning_content: str | None = None


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`function` of a call in a message."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    arguments: str


class MessageCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `tool_calls` of a message."""

    type: Literal["function"]
    function: CalledFunction
    id: ShortText | None = None


class ChatBody(_GenerationBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chat/completions. Messages keep their JSON form until `messages.parse_messages` has read each."""

    messages: list[Annotated[dict[str, Any], _shown_as("Message")]]
    tools: list[Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    thinking_token_budget: Budget | None = None
    max_completion_tokens: Int64 | None = None
    logprobs: bool = False
    top_logprobs: Int64 | None = None
    metadata: Metadata | None = None
    safety_identifier: Annotated[str, Meta(max_length=64)] | None = None
    prompt_cache_key: ShortText | None = None


class EmbeddingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/embeddings. `input`: a string, strings, token ids, or lists of token ids."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: str = "float"
    dimensions: Int64 | None = None
    user: ShortText | None = None


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize: either `prompt` or `messages`, with what else the chat template gets."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Annotated[dict[str, Any], _shown_as("Message")]] | None = None
    add_special_tokens: bool = True
    tools: list[Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]
    skip_special_tokens: bool = False
