"""A model's tokenizer as llguidance wants to see it: the bytes of each id, and canonical ids of forced text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from forebay.structured.lark import SpecialTokens
from forebay.tokenizer import Tokenizer

_MARK: Final = 0xFF  # llguidance puts this byte before special tokens; it is no part of any text
_MAX_REMEMBERED: Final = 8192


class TokenTable:
    """What llguidance.LLTokenizer takes as a "tokenizer wrapper"; its attributes and the call are that protocol.

    tokens: the bytes of each id below `vocab_size`, empty for ids without a token. Special tokens and those that end an
    output never match text. Calling it tokenizes text that a grammar forces, canonically as far as the tokenizer can.
    """

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_ids = sorted(i for i in set(eos_token_ids) if 0 <= i < vocab_size)
        special = {i for i in tokenizer.pieces.special_ids if 0 <= i < vocab_size} | set(self.eos_token_ids)
        self.eos_token_id = self.eos_token_ids[0] if self.eos_token_ids else None
        self.bos_token_id = tokenizer.bos_token_id
        self.special_token_ids = sorted(special)
        self.tokens = [self._bytes(i, i in special) for i in range(vocab_size)]
        self._special = special
        self._ids = {piece: i for i, piece in reversed(list(enumerate(self.tokens))) if piece and i not in special}
        self._longest = max(map(len, self._ids), default=0)
        self._remembered: dict[str, list[int]] = {}

    def _bytes(self, token_id: int, special: bool) -> bytes:
        piece = self._tokenizer.token_bytes(token_id) if token_id < self._tokenizer.vocab_size else b""
        if special:
            return piece or b"<%d>" % token_id
        return b"" if piece[:1] == bytes([_MARK]) else piece

    def special_tokens(self) -> SpecialTokens:
        """For grammars that name them: texts that llguidance can tell apart, the lowest id of each."""
        texts = {i: self.tokens[i].decode("utf-8", "replace") for i in self.special_token_ids}
        ids = {text: i for i, text in reversed(texts.items()) if len(text) > 1}
        return SpecialTokens(ids, frozenset(texts[i] for i in self.eos_token_ids))

    def __call__(self, text: str) -> list[int]:
        """Ids whose bytes are `text`, no special tokens among them, whatever the text spells."""
        ids = self._remembered.get(text)
        if ids is None:
            ids = self._tokenized(text)
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[text] = ids
        return ids

    def _tokenized(self, text: str) -> list[int]:
        wanted = text.encode()
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if self._spells(ids, wanted):
            return ids
        # a tokenizer that begins a text with a space of its own: as the text goes on behind a line end
        lead = self._tokenizer.encode("\n", add_special_tokens=False)
        ids = self._tokenizer.encode(f"\n{text}", add_special_tokens=False)
        if ids[: len(lead)] == lead and self._spells(ids[len(lead) :], wanted):
            return ids[len(lead) :]
        return self._greedy(wanted)

    def _spells(self, ids: list[int], wanted: bytes) -> bool:
        known = all(i < len(self.tokens) and i not in self._special for i in ids)
        return known and b"".join(self.tokens[i] for i in ids) == wanted

    def _greedy(self, wanted: bytes) -> list[int]:
        """The longest token each time; what no token begins is left out, and llguidance forces nothing there."""
        ids: list[int] = []
        start = 0
        while start < len(wanted):
            end = min(len(wanted), start + self._longest)
            while end > start and wanted[start:end] not in self._ids:
                end -= 1
            if end == start:
                break
            ids.append(self._ids[wanted[start:end]])
            start = end
        return ids
