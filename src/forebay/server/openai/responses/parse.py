"""From the bytes of a Responses body to a typed request and its sampling parameters."""

from __future__ import annotations

from typing import Any, TypeVar

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.core.sampling_params import MAX_LOGPROBS, SamplingParams
from forebay.errors import InvalidValueError
from forebay.server.fields import check_object
from forebay.server.openai.fields import FieldTable, check_fields
from forebay.server.openai.parse import convert, decode_object, shorten
from forebay.server.openai.responses.fields import (
    ABSENT_OUTPUT,
    FORMAT_FIELDS,
    INPUT_TOKENS_FIELDS,
    LOGPROBS,
    REASONING_FIELDS,
    RESPONSE_FIELDS,
    STREAM_OPTIONS_FIELDS,
    TEXT_FIELDS,
)
from forebay.server.openai.responses.requests import InputTokensBody, PromptBody, ResponseBody, TextFormat
from forebay.server.openai.sampling import sampling_of
from forebay.server.openai.structured import FORMATS, named_schema, structured_outputs, the_one

B = TypeVar("B", InputTokensBody, ResponseBody)


def parse_body(raw: bytes) -> ResponseBody:
    """Everything but the input and the tools, which are read later. Raises RequestError."""
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
    body = _parsed(raw, InputTokensBody, INPUT_TOKENS_FIELDS)
    the_one(_format(body))
    return body


def sampling(body: ResponseBody) -> SamplingParams:
    """Errors name our fields, where they differ; see `create.RESPONSES`."""
    if not 0 <= body.top_logprobs <= MAX_LOGPROBS:
        raise InvalidValueError(
            f"top_logprobs must be an integer from 0 to {MAX_LOGPROBS}, got {body.top_logprobs}", param="top_logprobs"
        )
    return sampling_of(
        body,
        the_one(_format(body), *structured_outputs(body)),
        max_tokens=body.max_output_tokens,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop),
        logprobs=body.top_logprobs if asks_for_logprobs(body) else None,
    )


def asks_for_logprobs(body: ResponseBody) -> bool:
    return body.top_logprobs > 0 or LOGPROBS in body.include


def _parsed(raw: bytes, type_: type[B], table: FieldTable) -> B:
    fields = check_fields(decode_object(raw), table)
    check_object(fields, "text", TEXT_FIELDS)
    check_object(fields, "reasoning", REASONING_FIELDS)
    check_object(fields, "stream_options", STREAM_OPTIONS_FIELDS)
    return convert(fields, type_)


def _format(body: PromptBody) -> GrammarSpec | None:
    """What `text.format` says, unchecked."""
    if body.text.format is None:
        return None
    where = "text.format"
    given = check_fields(body.text.format, FORMAT_FIELDS, where)
    kind = convert({"type": given["type"]} if "type" in given else {}, TextFormat, where).type
    if kind not in FORMATS:
        raise InvalidValueError(
            f"{where}.type must be one of {', '.join(FORMATS)}, got {shorten(kind)}", param=f"{where}.type"
        )
    rest: dict[str, Any] = {name: value for name, value in given.items() if name != "type"}
    if kind == "json_schema":
        if "schema" not in rest:
            raise InvalidValueError(f"{where}.schema is required with type json_schema", param=f"{where}.schema")
        return named_schema(rest, where)
    for name in rest:
        raise InvalidValueError(f"{where}.{name} needs type json_schema, got {shorten(kind)}", param=f"{where}.{name}")
    return GrammarSpec(kind=GrammarKind.JSON_OBJECT, param=where) if kind == "json_object" else None
