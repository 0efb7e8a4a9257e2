"""Prompts of a given number of tokens, for either endpoint."""

from __future__ import annotations

from typing import Any, Literal

from forebay.bench.plan import Message
from forebay.bench.workload.text import TextSource, chat_ids, count_chat, count_text
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer

EndpointKind = Literal["completions", "chat"]
Prompt = str | list[int] | list[Message]


def user(content: str) -> list[Message]:
    return [{"role": "user", "content": content}]


def body(*, ignore_eos: bool = False, **fields: Any) -> dict[str, Any]:
    """Fields of a request body: greedy, and to the last token if ignore_eos."""
    return {"temperature": 0} | ({"ignore_eos": True} if ignore_eos else {}) | fields


class PromptMaker:
    """Makes prompts of exact length that share nothing but `shared_prefix` tokens and the chat template.

    token_ids: prompts for /v1/completions are ids rather than text; nothing is added to ids, not even a BOS.
    least: fewest tokens of a prompt. shared: tokens that all prompts begin with, BOS and chat template included.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: TextSource,
        endpoint: EndpointKind,
        *,
        token_ids: bool,
        shared_prefix: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._source = source
        self._chat = endpoint == "chat"
        self._as_ids = token_ids and not self._chat
        self._shared_ids = source.cut(shared_prefix) if shared_prefix and self._as_ids else []
        self._shared = ""
        if shared_prefix and not self._as_ids:
            self._shared = source.cut_text(shared_prefix, place=self._placed, count=self._plain)
        self.least = 1 + (len(self._shared_ids) if self._as_ids else self._count(self._placed("")))
        self.shared = shared_prefix + (0 if self._as_ids else self._front())

    def of(self, n: int) -> Prompt:
        """A prompt that the server counts as n tokens. BenchError if n is less than `least`."""
        if self._as_ids:
            if n < self.least:
                raise BenchError(f"a prompt of {n} tokens cannot have {self.least - 1} shared ones; ask for more")
            return self._shared_ids + self._source.cut(n - len(self._shared_ids))
        text = self._source.cut_text(n, place=self._placed, count=self._count)
        return user(text) if self._chat else text

    def user_text(self, n: int) -> list[Message]:
        """A later turn of a session: n tokens of text, to which the template adds its own."""
        return user(self._source.cut_text(n, place=str.lstrip, count=self._plain))

    def _front(self) -> int:
        """Tokens that the server puts in front of a text."""
        texts = ("a", "b")
        one, other = (
            chat_ids(self._tokenizer, user(text)) if self._chat else self._tokenizer.encode(text) for text in texts
        )
        pairs = enumerate(zip(one, other, strict=False))
        return next((i for i, (first, second) in pairs if first != second), len(one))

    def _placed(self, piece: str) -> str:
        if not self._shared:  # a chat does not begin with the space before a word
            return piece.lstrip() if self._chat else piece
        # without a space the last shared word and the first one after it might become other tokens
        return self._shared + (piece if piece[:1].isspace() or not piece else f" {piece}")

    def _plain(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def _count(self, text: str) -> int:
        return count_chat(self._tokenizer, user(text)) if self._chat else count_text(self._tokenizer, text)
