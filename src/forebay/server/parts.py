"""A message as a row of parts - reasoning, text, calls - for the faces that show it so, whole and as events."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from forebay.structured.tools.deltas import ArgumentsDelta, CallEnded, CallStarted, ContentDelta, Delta, ReasoningDelta


class PartKind(enum.Enum):
    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"


class Step(enum.Enum):
    BEGIN = "begin"
    GROW = "grow"
    END = "end"


@dataclass(slots=True, eq=False)
class Part:
    """index: its place in the row. call: of a call, its id and name; its text is the arguments. complete: of a call,
    the arguments are one whole JSON object."""

    kind: PartKind
    index: int
    call: CallStarted | None = None
    complete: bool = False
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class PartRow:
    """The parts of one choice, at most one open at a time.

    The line break with which a parser joins content before and after calls is not part of either text: joined by line
    breaks the texts are the content.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._open: Part | None = None

    def read(self, deltas: Iterable[Delta]) -> Iterator[tuple[Step, Part, str]]:
        """What the deltas do to the row, step by step, with the new text of a part that grows. Has to be exhausted."""
        for delta in deltas:
            match delta:
                case ContentDelta(text=text):
                    yield from self._grow(PartKind.TEXT, text)
                case ReasoningDelta(text=text):
                    yield from self._grow(PartKind.REASONING, text)
                case CallStarted():
                    yield from self._begin(PartKind.CALL, delta)
                case ArgumentsDelta(text=text):
                    yield from self._grow(PartKind.CALL, text)
                case CallEnded(complete=complete):
                    self.parts[-1].complete = complete
                    yield from self.close()

    def close(self) -> Iterator[tuple[Step, Part, str]]:
        """End the open part, if one is."""
        if self._open is not None:
            part, self._open = self._open, None
            yield Step.END, part, ""

    def _begin(self, kind: PartKind, call: CallStarted | None = None) -> Iterator[tuple[Step, Part, str]]:
        yield from self.close()
        self._open = Part(kind, len(self.parts), call)
        self.parts.append(self._open)
        yield Step.BEGIN, self._open, ""

    def _grow(self, kind: PartKind, text: str) -> Iterator[tuple[Step, Part, str]]:
        if self._open is None or self._open.kind is not kind:
            if any(part.kind is kind for part in self.parts):
                text = text.removeprefix("\n")
            yield from self._begin(kind)
        part = self.parts[-1]
        part.pieces.append(text)
        yield Step.GROW, part, text


def parts_of(deltas: Iterable[Delta]) -> list[Part]:
    """The parts of a whole message."""
    row = PartRow()
    for _ in row.read(deltas):
        pass
    return row.parts
