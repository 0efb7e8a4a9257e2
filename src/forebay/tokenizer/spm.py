"""SentencePiece BPE as llama.cpp does it (src/llama-vocab.cpp, llm_tokenizer_spm): no pre-tokenizer and no merge list.

Of all neighbouring symbols whose concatenation is a token, the pair with the highest score merges first (of equals the
leftmost), until none is left. A character that is no token becomes its UTF-8 bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache

_SPACE = "\u2581"
_MAX_CACHED_CHARS = 48
_CACHED_SEGMENTS = 1 << 15


class SentencePieceBPE:
    """tokens, scores: the vocabulary by id, spaces written as U+2581. byte_ids: the token for each of the 256 bytes."""

    def __init__(self, tokens: Sequence[str], scores: Sequence[float], byte_ids: Sequence[int]) -> None:
        self._ids = {text: i for i, text in enumerate(tokens)}
        self._scores = scores
        self._byte_ids = byte_ids
        # Two characters that are neighbours in no token never end up in one: the text can be cut between them, exactly.
        self._inside: set[str] = set()
        for text in tokens:
            self._inside.update(map(str.__add__, text, text[1:]))
        self._cached = lru_cache(maxsize=_CACHED_SEGMENTS)(self._merge)

    def encode(self, text: str) -> list[int]:
        """Ids of a text without special tokens, taken as it is: a leading space is the caller's business."""
        text = text.replace(" ", _SPACE)
        ids: list[int] = []
        start = 0
        inside = self._inside
        for end in range(1, len(text) + 1):
            if text[end - 1 : end + 1] not in inside:  # also true at the end, where it is one character
                segment = text[start:end]
                ids.extend(self._cached(segment) if end - start <= _MAX_CACHED_CHARS else self._merge(segment))
                start = end
        return ids

    def _merge(self, segment: str) -> tuple[int, ...]:
        symbols = list(segment)  # "" once a symbol has been merged into the one on its left
        left_of = list(range(-1, len(symbols) - 1))
        right_of = [*range(1, len(symbols)), -1]
        queue: list[tuple[float, int, int, int]] = []  # (-score, left, right, length): best first

        def propose(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                merged = symbols[left] + symbols[right]
                token_id = self._ids.get(merged)
                if token_id is not None:
                    heapq.heappush(queue, (-self._scores[token_id], left, right, len(merged)))

        for i in range(1, len(symbols)):
            propose(i - 1, i)
        while queue:
            _, left, right, length = heapq.heappop(queue)
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != length:
                continue  # one of the two has merged with another since
            symbols[left] += symbols[right]
            symbols[right] = ""
            after = right_of[left] = right_of[right]
            if after >= 0:
                left_of[after] = left
            propose(left_of[left], left)
            propose(left, after)
        return tuple(i for symbol in symbols if symbol for i in self._symbol_ids(symbol))

    def _symbol_ids(self, symbol: str) -> list[int]:
        token_id = self._ids.get(symbol)
        return [token_id] if token_id is not None else [self._byte_ids[byte] for byte in symbol.encode()]
