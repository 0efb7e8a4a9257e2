"""Reading what a model says: reasoning, text for the user, tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from forebay.core.outputs import CompletionChunk
from forebay.structured.reasoning_tokens import ReasoningTokens
from forebay.structured.tools.deltas import CallStarted, ContentDelta, Delta, Malformed
from forebay.structured.tools.message import MessageParser

TOOL_CALLS = "tool_calls"  # finish reason of a message that ended by itself and has a call


@dataclass(frozen=True, slots=True)
class Said:
    """What a chunk says. finish_reason: of the message, as OpenAI words it; None while it goes on.
    num_reasoning_tokens: of all chunks so far."""

    deltas: list[Delta]
    finish_reason: str | None
    num_reasoning_tokens: int = 0


@dataclass(slots=True)
class MessageReader:
    """One choice. Without a parser all text is content."""

    parser: MessageParser | None = None
    reasoning: ReasoningTokens | None = None
    calls: bool = field(default=False, init=False)

    def read(self, chunk: CompletionChunk) -> Said:
        """What a chunk says; the last one says all that was held back."""
        if self.reasoning is not None:
            self.reasoning.push(chunk.token_ids)
        deltas = self._deltas(chunk)
        called = self.calls and chunk.finish_reason == "stop"
        return Said(deltas, TOOL_CALLS if called else chunk.finish_reason, self.num_reasoning_tokens)

    @property
    def num_reasoning_tokens(self) -> int:
        return 0 if self.reasoning is None else self.reasoning.count

    def _deltas(self, chunk: CompletionChunk) -> list[Delta]:
        if self.parser is None:
            return [ContentDelta(chunk.text)] if chunk.text else []
        deltas = self.parser.push(chunk.text, len(chunk.token_ids)) if chunk.text else []
        if chunk.finish_reason is not None:
            deltas = [*deltas, *self.parser.finish()]
        self.calls = self.calls or any(isinstance(delta, CallStarted) for delta in deltas)
        return _nothing_lost(deltas)


def _nothing_lost(deltas: Sequence[Delta]) -> list[Delta]:
    """What stood in a call's place without being one reaches the user as text."""
    shown: list[Delta] = []
    for delta in deltas:
        if not isinstance(delta, Malformed):
            shown.append(delta)
        elif delta.text:
            shown.append(ContentDelta(delta.text))
    return shown
