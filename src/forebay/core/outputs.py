"""What a user of the Python API and of the server gets back."""

from __future__ import annotations

import msgspec

from forebay.core.messages import Event
from forebay.core.step import TokenLogprobs


class CompletionChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of one completion: new text and the new tokens it came from (either may be empty).

    Text never ends inside a character; text that could still become a stop string is held back. prompt_logprobs: of the
    next tokens of the prompt, with child 0, if asked for. hidden: see Completion.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_string: str | None = None  # comes with the finish_reason, if it was a stop string that ended the completion
    num_cached_tokens: int = 0
    events: tuple[Event, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    hidden: bytes | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One finished completion (child `index` of its request).

    hidden: of a request for it, in place of text and tokens: the final hidden state of the last token of the prompt
    (float32, little-endian; engine/embedding.py makes an embedding of it).
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    finish_reason: str
    num_cached_tokens: int = 0
    events: tuple[Event, ...] = ()
    hidden: bytes | None = None


class GenerateResult(msgspec.Struct, frozen=True, kw_only=True):
    """All completions of one prompt, in child order.

    prompt_logprobs: if asked for, one entry for each token of the prompt; the first, which follows nothing, is None.
    """

    request_id: str
    prompt_token_ids: list[int]
    completions: list[Completion]
    seed: int
    prompt_logprobs: list[TokenLogprobs | None] | None = None

    @property
    def text(self) -> str:
        return self.completions[0].text
