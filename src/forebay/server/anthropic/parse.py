"""From the bytes of a Messages body to a typed request, and from its messages to a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from starlette.requests import Request

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.anthropic.errors import VERSION_HEADER
from forebay.server.anthropic.fields import (
    BLOCKS,
    CACHE_CONTROL_FIELDS,
    MESSAGE_FIELDS,
    METADATA_FIELDS,
    TEXT_BLOCK_FIELDS,
)
from forebay.server.anthropic.requests import CacheControl, CountTokensBody, InputMessage, TextBlock
from forebay.server.fields import check_object
from forebay.server.openai.fields import FieldTable, Kind, check_fields
from forebay.server.openai.parse import convert, decode_object, shorten
from forebay.tokenizer import ChatPrompt, Tokenizer

VERSIONS = ("2023-06-01", "2026-10-21")
ROLES = ("user", "assistant", "system")

Turn = dict[str, Any]  # role and content, as chat templates expect them
B = TypeVar("B", bound=CountTokensBody)


def check_version(request: Request) -> None:
    """The header may be absent: curl users forget it, and what the versions share is all there is here."""
    given = request.headers.get(VERSION_HEADER, VERSIONS[-1])
    if given not in VERSIONS:
        raise InvalidValueError(
            f"{VERSION_HEADER} must be {' or '.join(VERSIONS)}, got {shorten(given)}; set it or leave it out",
            param=VERSION_HEADER,
        )


def parse_body(raw: bytes, type_: type[B], table: FieldTable) -> B:
    """Everything but the messages and the system prompt, which are for `conversation`. Raises RequestError."""
    fields = check_fields(decode_object(raw), table)
    check_object(fields, "metadata", METADATA_FIELDS)
    check_object(fields, "cache_control", CACHE_CONTROL_FIELDS)
    body = convert(fields, type_)
    _check_cache_control(body.cache_control, "cache_control")
    return body


def conversation(body: CountTokensBody) -> list[Turn]:
    """System prompt and messages as turns. Messages of one role in a row are one turn, as the API documents."""
    if not body.messages:
        raise InvalidValueError("messages must hold at least one message", param="messages")
    system = _text(body.system, "system")
    turns = [{"role": "system", "content": system}] if system else []
    turns += [_turn(message, f"messages[{i}]") for i, message in enumerate(body.messages)]
    return [
        {"role": role, "content": "\n".join(turn["content"] for turn in row)}
        for role, row in groupby(turns, key=itemgetter("role"))
    ]


def render(tokenizer: Tokenizer, turns: list[Turn]) -> ChatPrompt:
    """The prompt. If the last turn is the assistant's, it ends where that turn does and the answer continues it.

    Raises UnsupportedFieldError for a template that does not show the last turn as it is.
    """
    return tokenizer.chat_prompt(turns, continue_final_message=turns[-1]["role"] == "assistant")


def _turn(raw: dict[str, Any], where: str) -> Turn:
    message = convert(check_fields(raw, MESSAGE_FIELDS, where), InputMessage, where)
    _check_one_of(message.role, ROLES, f"{where}.role")
    return {"role": message.role, "content": _text(message.content, f"{where}.content")}


def _text(content: str | list[dict[str, Any]], where: str) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_block_text(block, f"{where}[{i}]") for i, block in enumerate(content))


def _block_text(raw: dict[str, Any], where: str) -> str:
    kind = raw.get("type")
    if isinstance(kind, str):
        _check_one_of(kind, BLOCKS, f"{where}.type")
        if BLOCKS[kind].kind is Kind.REFUSED:
            raise UnsupportedFieldError(
                f"{where}.type {kind!r} is not supported: {BLOCKS[kind].why}; send blocks of type 'text'",
                param=f"{where}.type",
            )
    fields = check_fields(raw, TEXT_BLOCK_FIELDS, where)
    check_object(fields, "cache_control", CACHE_CONTROL_FIELDS, where)
    block = convert(fields, TextBlock, where)
    _check_cache_control(block.cache_control, f"{where}.cache_control")
    return block.text


def _check_cache_control(given: CacheControl | None, where: str) -> None:
    if given is not None:
        _check_one_of(given.type, ("ephemeral",), f"{where}.type")
        _check_one_of(given.ttl, ("5m", "1h"), f"{where}.ttl")


def _check_one_of(value: str, allowed: Iterable[str], where: str) -> None:
    allowed = tuple(allowed)
    if value not in allowed:
        raise InvalidValueError(f"{where} must be one of {', '.join(allowed)}, got {shorten(value)}", param=where)
