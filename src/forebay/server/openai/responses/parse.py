"""From the bytes of a Responses body to a typed request, its conversation and its sampling parameters."""

from __future__ import annotations

from typing import Any, TypeVar

from forebay.core.sampling_params import MAX_LOGPROBS, SamplingParams
from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.fields import check_object
from forebay.server.openai.fields import FieldTable, check_fields
from forebay.server.openai.parse import convert, decode_object, shorten
from forebay.server.openai.responses.fields import (
    ABSENT_OUTPUT,
    INPUT_TOKENS_FIELDS,
    ITEM_FIELDS,
    LOGPROBS,
    PART_FIELDS,
    RESPONSE_FIELDS,
    STREAM_OPTIONS_FIELDS,
    TEXT_FIELDS,
)
from forebay.server.openai.responses.requests import InputBody, InputItem, InputTokensBody, ResponseBody, TextPart

TEXT_PARTS = ("input_text", "output_text")
B = TypeVar("B", bound=InputBody)

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def parse_body(raw: bytes) -> ResponseBody:
    """Everything but the input, which is for `conversation`. Raises RequestError."""
    body = _parsed(raw, ResponseBody, RESPONSE_FIELDS)
    if body.stream_options is not None and not body.stream:
        raise InvalidValueError(
            "stream_options is only allowed with stream: true; set it or leave stream_options out",
            param="stream_options",
        )
    for i, name in enumerate(body.include):
        if name not in (LOGPROBS, *ABSENT_OUTPUT):
            allowed = ", ".join((LOGPROBS, *ABSENT_OUTPUT))
            raise InvalidValueError(
                f"include[{i}] must be one of {allowed}, got {shorten(name)}", param=f"include[{i}]"
            )
    return body


def parse_input_tokens_body(raw: bytes) -> InputTokensBody:
    """As `parse_body`."""
    return _parsed(raw, InputTokensBody, INPUT_TOKENS_FIELDS)


def conversation(body: InputBody) -> list[dict[str, str]]:
    """Instructions and input in the form chat templates expect."""
    before = [{"role": "system", "content": body.instructions}] if body.instructions else []
    if isinstance(body.input, str):
        return [*before, {"role": "user", "content": body.input}]
    if not body.input:
        raise InvalidValueError("input must be a string or hold at least one message", param="input")
    return before + [_message(item, f"input[{i}]") for i, item in enumerate(body.input)]


def sampling(body: ResponseBody) -> SamplingParams:
    """Errors name our fields, where they differ; see `create.RESPONSES`."""
    if not 0 <= body.top_logprobs <= MAX_LOGPROBS:
        raise InvalidValueError(
            f"top_logprobs must be an integer from 0 to {MAX_LOGPROBS}, got {body.top_logprobs}", param="top_logprobs"
        )
    wanted = body.top_logprobs > 0 or LOGPROBS in body.include
    return SamplingParams(
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        ignore_eos=body.ignore_eos,
        seed=body.seed,
        logprobs=body.top_logprobs if wanted else None,
    )


def _parsed(raw: bytes, type_: type[B], table: FieldTable) -> B:
    fields = check_fields(decode_object(raw), table)
    check_object(fields, "text", TEXT_FIELDS)
    check_object(fields, "stream_options", STREAM_OPTIONS_FIELDS)
    return convert(fields, type_)


def _message(raw: dict[str, Any], where: str) -> dict[str, str]:
    kind = raw.get("type")
    if kind == "item_reference":
        raise UnsupportedFieldError(
            f"{where}.type 'item_reference' is not supported: items are not stored; send the message itself",
            param=f"{where}.type",
        )
    if isinstance(kind, str) and kind != "message":
        raise UnsupportedFieldError(
            f"{where}.type {shorten(kind)} is not supported: tool calls and reasoning items are not implemented; send "
            "items of type 'message'",
            param=f"{where}.type",
        )
    item = convert(check_fields(raw, ITEM_FIELDS, where), InputItem, where)
    if item.role not in ROLES:
        raise InvalidValueError(
            f"{where}.role must be one of {', '.join(ROLES)}, got {shorten(item.role)}", param=f"{where}.role"
        )
    content = item.content
    if not isinstance(content, str):
        content = "\n".join(_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))
    return {"role": ROLES[item.role], "content": content}


def _part(raw: dict[str, Any], where: str) -> str:
    kind = raw.get("type")
    if isinstance(kind, str) and kind not in TEXT_PARTS:
        raise UnsupportedFieldError(
            f"{where}.type {shorten(kind)} is not supported: this model reads text; send parts of type 'input_text'",
            param=f"{where}.type",
        )
    return convert(check_fields(raw, PART_FIELDS, where), TextPart, where).text
