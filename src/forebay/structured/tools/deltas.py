"""What the parser of an assistant's text reports, piece by piece, and the whole message that the pieces make.

Joined with `merged`, the pieces of a text are the same however the text was cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import groupby

import msgspec

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class ContentDelta(msgspec.Struct, frozen=True, gc=False):
    """Text for the user. It never holds a marker of the format."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """Text of the model's reasoning, without its markers."""

    text: str


class CallStarted(msgspec.Struct, frozen=True, gc=False):
    """A call begins; `index` counts the calls of the message from 0."""

    index: int
    id: str
    name: str


class ArgumentsDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece, never empty, of the JSON text of a call's arguments."""

    index: int
    text: str


class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """A call is over. complete: its arguments are one whole JSON object; otherwise they broke off or are not JSON."""

    index: int
    complete: bool


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """What stood where a call should and is none. text: the model's words without markers, possibly none."""

    text: str
    reason: str


Delta = ContentDelta | ReasoningDelta | CallStarted | ArgumentsDelta | CallEnded | Malformed


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One whole call. arguments: JSON text as the model wrote it (or what there is of it, if not `complete`)."""

    index: int
    id: str
    name: str
    arguments: str
    complete: bool


class ParsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A whole assistant message."""

    content: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    malformed: tuple[Malformed, ...]


def merged(deltas: Iterable[Delta]) -> list[Delta]:
    """The same deltas with neighbours of one text made one."""
    result: list[Delta] = []
    for _, group in groupby(deltas, key=_text_id):
        first, *rest = group
        if rest:
            text = "".join([delta.text for delta in (first, *rest)])  # type: ignore[union-attr]  # _text_id says so
            first = msgspec.structs.replace(first, text=text)
        result.append(first)
    return result


def collect(deltas: Iterable[Delta]) -> ParsedMessage:
    """The message that all deltas of a parser make, `finish` included."""
    content: list[str] = []
    reasoning: list[str] = []
    started: list[CallStarted] = []
    arguments: dict[int, list[str]] = {}
    complete: set[int] = set()
    malformed: list[Malformed] = []
    for delta in deltas:
        match delta:
            case ContentDelta(text=text):
                content.append(text)
            case ReasoningDelta(text=text):
                reasoning.append(text)
            case CallStarted(index=index):
                started.append(delta)
                arguments[index] = []
            case ArgumentsDelta(index=index, text=text):
                arguments[index].append(text)
            case CallEnded(index=index, complete=True):
                complete.add(index)
            case Malformed():
                malformed.append(delta)
    calls = [
        ToolCall(
            index=call.index,
            id=call.id,
            name=call.name,
            arguments="".join(arguments[call.index]),
            complete=call.index in complete,
        )
        for call in started
    ]
    return ParsedMessage(
        content="".join(content), reasoning="".join(reasoning), calls=tuple(calls), malformed=tuple(malformed)
    )


class CallIds:
    """Ids of the calls of one choice: `prefix` and `length` letters and digits.

    They follow from the request id, which no other request of the conversation has, so they need no random numbers
    and a repeated index gives the same id.
    """

    def __init__(self, request_id: str, choice: int = 0, *, prefix: str = "call_", length: int = 24) -> None:
        self._root = f"{request_id}/{choice}"
        self._prefix = prefix
        self._length = length

    def __call__(self, index: int) -> str:
        number = int.from_bytes(hashlib.sha256(f"{self._root}/{index}".encode()).digest())
        letters = []
        for _ in range(self._length):
            number, letter = divmod(number, len(_ALPHABET))
            letters.append(_ALPHABET[letter])
        return self._prefix + "".join(letters)


def _text_id(delta: Delta) -> tuple[type, int]:
    """Equal for neighbours that are pieces of one text, and for no others."""
    match delta:
        case ContentDelta() | ReasoningDelta():
            return type(delta), 0
        case ArgumentsDelta(index=index):
            return ArgumentsDelta, index
    return type(delta), id(delta)
