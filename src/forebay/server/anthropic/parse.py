"""From the bytes of a Messages body to a typed request, and the checks that its parts share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from starlette.requests import Request

from forebay.errors import InvalidValueError
from forebay.server.anthropic.errors import VERSION_HEADER
from forebay.server.anthropic.fields import (
    CACHE_CONTROL_FIELDS,
    METADATA_FIELDS,
    OUTPUT_CONFIG_FIELDS,
    OUTPUT_FORMAT_FIELDS,
    THINKING_FIELDS,
    TOOL_CHOICE_FIELDS,
)
from forebay.server.anthropic.requests import CacheControl, CountTokensBody, MessagesBody
from forebay.server.fields import check_object
from forebay.server.openai.fields import FieldTable, check_fields
from forebay.server.openai.parse import convert, decode_object, shorten

VERSIONS = ("2023-06-01", "2026-10-21")
B = TypeVar("B", CountTokensBody, MessagesBody)
T = TypeVar("T")


def check_version(request: Request) -> None:
    """The header may be absent: curl users forget it, and what the versions share is all there is here."""
    given = request.headers.get(VERSION_HEADER, VERSIONS[-1])
    if given not in VERSIONS:
        raise InvalidValueError(
            f"{VERSION_HEADER} must be {' or '.join(VERSIONS)}, got {shorten(given)}; set it or leave it out",
            param=VERSION_HEADER,
        )


def parse_body(raw: bytes, type_: type[B], table: FieldTable) -> B:
    """Everything but the messages, the system prompt and the tools, which are read later. Raises RequestError."""
    fields = check_fields(decode_object(raw), table)
    check_object(fields, "metadata", METADATA_FIELDS)
    check_object(fields, "cache_control", CACHE_CONTROL_FIELDS)
    check_object(fields, "tool_choice", TOOL_CHOICE_FIELDS)
    check_object(fields, "thinking", THINKING_FIELDS)
    check_object(fields, "output_config", OUTPUT_CONFIG_FIELDS)
    if isinstance(config := fields.get("output_config"), dict):
        check_object(config, "format", OUTPUT_FORMAT_FIELDS, "output_config")
    body = convert(fields, type_)
    check_cache_control(body.cache_control, "cache_control")
    if (wanted := body.output_config.format) is not None:
        check_one_of(wanted.type, ("json_schema",), "output_config.format.type")
    return body


def parse_block(raw: dict[str, Any], table: FieldTable, type_: type[T], where: str) -> T:
    """A content block or a tool, with its cache_control checked."""
    fields = check_fields(raw, table, where)
    check_object(fields, "cache_control", CACHE_CONTROL_FIELDS, where)
    block = convert(fields, type_, where)
    check_cache_control(getattr(block, "cache_control", None), f"{where}.cache_control")
    return block


def check_cache_control(given: CacheControl | None, where: str) -> None:
    if given is not None:
        check_one_of(given.type, ("ephemeral",), f"{where}.type")
        check_one_of(given.ttl, ("5m", "1h"), f"{where}.ttl")


def check_one_of(value: str, allowed: Iterable[str], where: str) -> None:
    allowed = tuple(allowed)
    if value not in allowed:
        raise InvalidValueError(f"{where} must be one of {', '.join(allowed)}, got {shorten(value)}", param=where)
