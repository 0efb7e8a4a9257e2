"""`thinking` of a Messages body: what the chat template is told, and how many tokens of reasoning there may be."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.anthropic.parse import check_one_of
from forebay.server.anthropic.requests import ThinkingBody
from forebay.server.speech import one_token
from forebay.structured.tools.message import MessageFormat
from forebay.tokenizer import Tokenizer

SWITCH = "enable_thinking"  # the variable by which templates turn reasoning on and off (Qwen 3 and after)
_TYPES = ("enabled", "adaptive", "disabled")


@dataclass(frozen=True, slots=True)
class Thinking:
    """variables: of the chat template. budget: most tokens of reasoning, None for no limit."""

    variables: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None


def check_thinking(given: ThinkingBody | None, max_tokens: int | None) -> None:
    """Raises InvalidValueError for what no model could be asked. max_tokens: None where nothing is generated."""
    if given is None:
        return
    where = "thinking.budget_tokens"
    check_one_of(given.type, _TYPES, "thinking.type")
    if given.type != "enabled" and given.budget_tokens is not None:
        raise InvalidValueError(f"{where} needs type enabled, got {given.type}", param=where)
    if given.type == "enabled" and given.budget_tokens is None:
        raise InvalidValueError(f"{where} is required with type enabled; or set the type to adaptive", param=where)
    if given.budget_tokens is not None and max_tokens is not None and given.budget_tokens >= max_tokens:
        raise InvalidValueError(
            f"{where} must be less than max_tokens={max_tokens}, got {given.budget_tokens}", param=where
        )


def thinking_of(
    given: ThinkingBody | None, kwargs: dict[str, Any], speaks: MessageFormat, tokenizer: Tokenizer
) -> Thinking:
    """given: checked. kwargs: the body's chat_template_kwargs.

    Absent and adaptive leave it to the model whether it reasons; adaptive turns on what its template can turn on.
    Disabled turns it off, and leaves no tokens for reasoning that the model begins all the same.
    Raises UnsupportedFieldError where the model cannot do as it is told, InvalidValueError where kwargs contradict.
    """
    if given is None:
        return Thinking()
    wanted = given.type != "disabled"
    channels = speaks.tools is not None and speaks.tools.channels
    if given.type == "enabled" and speaks.splits is None:
        why = "there is no budget in channels" if channels else "this model's chat template has no markers of reasoning"
        raise UnsupportedFieldError(
            f'thinking.type "enabled" is not supported: {why}; leave thinking out or set its type to "adaptive"',
            param="thinking.type",
        )
    if re.search(rf"\b{SWITCH}\b", tokenizer.chat_template or ""):
        if kwargs.get(SWITCH, wanted) != wanted:
            raise InvalidValueError(
                f"chat_template_kwargs.{SWITCH} and thinking contradict each other; leave out one of them",
                param=f"chat_template_kwargs.{SWITCH}",
            )
        return Thinking({SWITCH: wanted}, given.budget_tokens if wanted or not _can_end(speaks, tokenizer) else 0)
    if not wanted and channels:
        raise UnsupportedFieldError(
            'thinking.type "disabled" is not supported: this model always reasons; leave thinking out',
            param="thinking.type",
        )
    return Thinking(budget=given.budget_tokens if wanted or speaks.splits is None else 0)


def _can_end(speaks: MessageFormat, tokenizer: Tokenizer) -> bool:
    """Whether the engine can end reasoning: its markers are tokens."""
    markers = speaks.splits
    return markers is not None and all(one_token(tokenizer, marker) is not None for marker in markers.markers)
