"""The model's reasoning, told from what it says: <think>...</think> and the like, in text that arrives in pieces."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from forebay.errors import InvalidValueError
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.shape import Span

_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """The markers around reasoning, which comes first in a message and once."""

    begin: str
    end: str

    def __post_init__(self) -> None:
        if not self.begin.strip() or not self.end.strip() or self.begin == self.end:
            raise InvalidValueError(
                f"reasoning_markers {self.begin!r} and {self.end!r}: give two different texts",
                param="reasoning_markers",
            )

    @property
    def markers(self) -> tuple[str, str]:
        return self.begin, self.end

    @property
    def closing_text(self) -> str:
        """What closes reasoning that has to end now."""
        return f"\n{self.end}\n\n"

    def begins_inside(self, prompt: str) -> bool:
        """Whether the prompt has opened the reasoning, as generation prompts of many templates do."""
        return prompt.rstrip().endswith(self.begin.rstrip())

    def span(self, *, inside: bool) -> Span:
        """Reasoning as a grammar sees it; it may be left out where the prompt has not opened it."""
        return Span(() if inside else (self.begin,), self.end, at_least=int(inside), at_most=1, gap=True)


# Source: chat templates of DeepSeek R1 and Qwen 3; Magistral; Seed-OSS; Command R7B and later; MiniMax M3; Gemma 4
REASONING_FORMATS = (
    ReasoningFormat("<think>", "</think>"),
    ReasoningFormat("[THINK]", "[/THINK]"),
    ReasoningFormat("<seed:think>", "</seed:think>"),
    ReasoningFormat("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningFormat("<mm:think>", "</mm:think>"),
    ReasoningFormat("<|channel>thought\n", "<channel|>"),
)


def detect_reasoning(template: str | None) -> ReasoningFormat | None:
    """The format whose two markers stand in the text of a chat template; None if there is none.

    A template may build its markers from parts, or not name them; then they have to be set.
    """
    text = (template or "").replace("\\n", "\n")  # in a template a line break may be written as an escape
    return next((known for known in REASONING_FORMATS if known.begin in text and known.end in text), None)


class _Where(enum.Enum):
    BEFORE = "before"  # nothing but white space so far
    INSIDE = "inside"
    AFTER = "after"


class ReasoningSplitter:
    """Splits one message, the same way however its text is cut.

    White space next to the markers belongs to neither part. A text that does not begin with the marker has no
    reasoning, and all of it is content, whatever markers come later. Reasoning that is never closed stays reasoning.

    inside      the prompt has opened the reasoning; the marker may come again, and is dropped
    budget      most tokens of reasoning, None for no limit
    num_tokens  tokens pushed while reasoning was open: give tokens one by one for an exact count
    """

    def __init__(self, markers: ReasoningFormat, *, inside: bool, budget: int | None = None) -> None:
        if budget is not None and budget < 0:
            raise InvalidValueError(
                f"reasoning budget must be 0 or more tokens, got {budget}", param="reasoning_budget"
            )
        self._markers = markers
        self._opened = inside
        self._budget = budget
        self.num_tokens = 0
        self._where = _Where.BEFORE
        self._buffer = ""
        self._space = ""  # white space of the reasoning that may turn out to stand before the end marker
        self._after_marker = False  # nothing but white space since a marker

    @property
    def is_open(self) -> bool:
        """The next token would be reasoning."""
        return self._where is _Where.INSIDE or (self._where is _Where.BEFORE and self._opened)

    @property
    def spent(self) -> bool:
        """The budget is used up and reasoning goes on: now `closing_text` must follow."""
        return self._budget is not None and self.is_open and self.num_tokens >= self._budget

    @property
    def closing_text(self) -> str:
        """What to append to the text so that it leaves the reasoning."""
        return self._markers.closing_text

    def push(self, text: str, num_tokens: int = 0) -> tuple[str, str]:
        """(reasoning, content) that the new text decides. num_tokens: how many tokens it is."""
        if self.is_open:
            self.num_tokens += num_tokens
        self._buffer += text
        return self._run(final=False)

    def finish(self) -> tuple[str, str]:
        """What is left once there is no more text."""
        reasoning, content = self._run(final=True)
        if self._where is not _Where.AFTER:
            reasoning += self._space
        return reasoning, content

    def _run(self, *, final: bool) -> tuple[str, str]:
        reasoning = ""
        if self._where is _Where.BEFORE:
            self._look_for_begin(final)
        if self._where is _Where.INSIDE:
            reasoning = self._read_reasoning(final)
        return reasoning, self._read_content() if self._where is _Where.AFTER else ""

    def _look_for_begin(self, final: bool) -> None:
        stripped = self._buffer.lstrip(_SPACE)
        begin = self._markers.begin
        if stripped.startswith(begin):
            self._buffer = stripped[len(begin) :]
            self._where = _Where.INSIDE
        elif final or not begin.startswith(stripped):
            self._where = _Where.INSIDE if self._opened else _Where.AFTER
        self._after_marker = self._where is _Where.INSIDE

    def _read_reasoning(self, final: bool) -> str:
        text, marker, self._buffer = split_at(self._buffer, (self._markers.end,), final=final)
        text = self._space + text
        if self._after_marker:
            text = text.lstrip(_SPACE)
        shown = text.rstrip(_SPACE)
        self._space = text[len(shown) :]
        self._after_marker = self._after_marker and not shown
        if marker:
            self._where, self._space, self._after_marker = _Where.AFTER, "", True
        return shown

    def _read_content(self) -> str:
        text, self._buffer = self._buffer, ""
        if self._after_marker:
            text = text.lstrip(_SPACE)
            self._after_marker = not text
        return text
