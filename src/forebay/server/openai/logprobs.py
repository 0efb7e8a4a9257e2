"""Log-probabilities in OpenAI's two shapes: parallel lists (completions) and a list of objects (chat)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.core.outputs import CompletionChunk
from forebay.core.step import TokenLogprobs
from forebay.tokenizer import IncrementalDetokenizer, Tokenizer

# What OpenAI writes for a token that is as good as impossible; JSON has no -inf.
FLOOR = -9999.0


class ChatLogprobs:
    """`logprobs` of chat choices: one entry per token, the end-of-sequence token included."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def of(self, chunk: CompletionChunk) -> dict[str, Any]:
        content = []
        for token_id, found in zip(chunk.token_ids, chunk.logprobs or (), strict=True):
            top = [self._entry(other, logprob) for other, logprob in found.top]
            content.append(self._entry(token_id, found.logprob) | {"top_logprobs": top})
        return {"content": content, "refusal": None}

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        name, raw = self._tokenizer.token_text(token_id), self._tokenizer.token_bytes(token_id)
        return {"token": name, "logprob": max(logprob, FLOOR), "bytes": list(raw)}


class CompletionLogprobs:
    """`logprobs` of one completion choice, or of its echoed prompt. `text_offset`: characters of the choice's text
    before the token began.

    A token that begins inside a character has the offset of that character. start: characters before all of
    these tokens. prompt_token_ids: what they continue. shown_token_ids: special tokens that the text has all the same.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int] = (),
        *,
        skip_special_tokens: bool = True,
        shown_token_ids: Sequence[int] = (),
        start: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer(
            tokenizer,
            skip_special_tokens=skip_special_tokens,
            shown_token_ids=shown_token_ids,
            prompt_token_ids=prompt_token_ids,
        )
        self._offset = start

    def of(self, token_ids: Sequence[int], entries: Sequence[TokenLogprobs | None]) -> dict[str, Any]:
        """None, of a prompt's first token, which follows nothing, becomes null."""
        tokens: list[str] = []
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for token_id, found in zip(token_ids, entries, strict=True):
            name = self._tokenizer.token_text(token_id)
            tokens.append(name)
            offsets.append(self._offset + self._detokenizer.gives_up(token_id))
            self._offset += len(self._detokenizer.push([token_id]))
            if found is None:
                logprobs.append(None)
                tops.append(None)
                continue
            logprob = max(found.logprob, FLOOR)
            logprobs.append(logprob)
            # two ids may have one text: the better one, which comes first, keeps the key
            top: dict[str, float] = {}
            for other, value in found.top:
                top.setdefault(self._tokenizer.token_text(other), max(value, FLOOR))
            top.setdefault(name, logprob)
            tops.append(top)
        return {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Several pieces of one choice's logprobs, of either shape, as one."""
    whole: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            whole[key] = whole[key] + value if whole.get(key) is not None else value
    return whole
