"""Special tokens that a message spells are text: nobody can end a turn, or begin one, by writing its marker.

A mark, a character that is in no message, is put inside each of them before the chat template is rendered. What the
template itself writes has none, so its special tokens are recognized; the prompt is cut at the marks and encoded piece
by piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay.errors import InvalidValueError

_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # noncharacters: no text in any language has them


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A rendered conversation. No special token reaches from one piece into the next, though it may be spelled so."""

    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class SpelledTokens:
    """texts: those of the special tokens."""

    def __init__(self, texts: Iterable[str]) -> None:
        longest_first = sorted((text for text in texts if len(text) > 1), key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def mark_for(self, *values: Any) -> str | None:
        """A mark for `values` (plain JSON); None if they spell no special token."""
        texts = [text for value in values for text in _texts(value)]
        if self._found is None or not any(map(self._found.search, texts)):
            return None
        mark = next((mark for mark in _MARKS if not any(mark in text for text in texts)), None)
        if mark is None:
            raise InvalidValueError(
                "messages: all of the noncharacters U+FDD0 to U+FDEF are in them; remove these", param="messages"
            )
        return mark

    def marked(self, value: Any, mark: str) -> Any:
        """`value` with the mark inside each special token that it spells."""
        if isinstance(value, str) and self._found is not None:
            return self._found.sub(lambda found: found[0][0] + mark + found[0][1:], value)
        if isinstance(value, list):
            return [self.marked(item, mark) for item in value]
        if isinstance(value, dict):
            return {self.marked(key, mark): self.marked(item, mark) for key, item in value.items()}
        return value


def cut_at(text: str, mark: str) -> tuple[str, ...]:
    """The pieces between the marks, also where a template has written them as a JSON escape."""
    return tuple(text.replace(json.dumps(mark)[1:-1], mark).split(mark))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
