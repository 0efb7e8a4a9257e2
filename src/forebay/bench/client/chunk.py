"""The JSON of a streamed chunk of completions and of chat completions, as far as a measurement reads it.

Unknown fields are skipped and null is a field that is not there, as servers differ: OpenAI, vLLM, SGLang, llama.cpp.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

_Entries = list[msgspec.Raw] | None
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)] | None


class Text(NamedTuple):
    """Text of one chunk. `thought`: reasoning; `said`: for the reader; `called`: names and arguments of tools."""

    thought: str = ""
    said: str = ""
    called: str = ""


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None

    def text(self) -> Text:
        called = ""
        for call in self.tool_calls or ():
            if call.function is not None:
                called += (call.function.name or "") + (call.function.arguments or "")
        # some servers send their reasoning under both names
        thought = self.reasoning_content or self.reasoning or ""
        return Text(thought, (self.content or "") + (self.refusal or ""), called)


class Logprobs(msgspec.Struct, gc=False):
    """Entries stand in `tokens` (completions) or `content` and `refusal` (chat)."""

    tokens: _Entries = None
    content: _Entries = None
    refusal: _Entries = None

    def entries(self) -> int:
        return len(self.tokens or ()) + len(self.content or ()) + len(self.refusal or ())


class ChunkChoice(msgspec.Struct, gc=False):
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None

    def words(self) -> Text:
        return self.delta.text() if self.delta is not None else Text(said=self.text or "")

    def entries(self) -> int | None:
        """How many tokens its ids or logprobs list; None where it has neither."""
        if self.token_ids is not None:
            return len(self.token_ids)
        return None if self.logprobs is None else self.logprobs.entries()


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: _Count = None


class ChunkUsage(msgspec.Struct, gc=False):
    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    prompt_tokens_details: PromptDetails | None = None


class Chunk(msgspec.Struct, gc=False):
    """`error` of any shape but null, or object "error" (older vLLM), says that the answer failed."""

    id: str | int | None = None
    object: str | None = None
    choices: list[ChunkChoice] | None = None
    usage: ChunkUsage | None = None
    error: Any = None
