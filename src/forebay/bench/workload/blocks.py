"""Prompts made of named blocks, so that requests which share block ids in a trace share tokens here."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.bench.workload.text import TextSource
from forebay.bench.workload.traces import TraceRow
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer


class BlockText:
    """Each block id stands for one fixed run of `block_tokens` ids. Blocks that follow the same block differ from their
    first token on: a real text cannot promise that for thousands of them, so the first token is a word chosen for it.
    (With more such blocks than the vocabulary has tokens, two of them may share this one token.)"""

    def __init__(self, tokenizer: Tokenizer, source: TextSource, block_tokens: int) -> None:
        self._source = source
        self._block_tokens = block_tokens
        self._markers: list[int] = []
        self._more_markers = _markers(tokenizer)
        self._blocks: dict[int, list[int]] = {}
        self._followers: dict[int | None, int] = {}  # how many blocks have followed this one so far
        self._seen: dict[int, int] = {}  # most tokens of a block that a prompt has had
        self.shared_tokens = 0
        self.tokens = 0

    def prompt(self, row: TraceRow) -> list[int]:
        """The ids of a row's prompt. Counts how many of them stand in blocks that an earlier prompt has had."""
        ids: list[int] = []
        before: int | None = None
        for block_id in row.block_ids:
            part = self._block(block_id, before)[: row.input_tokens - len(ids)]
            seen = self._seen.get(block_id, 0)
            self.shared_tokens += min(seen, len(part))
            self._seen[block_id] = max(seen, len(part))
            ids += part
            before = block_id
        if len(ids) != row.input_tokens:
            raise BenchError(
                f"a prompt of {row.input_tokens} tokens has {len(row.block_ids)} block ids; check the trace"
            )
        self.tokens += len(ids)
        return ids

    def _block(self, block_id: int, before: int | None) -> list[int]:
        block = self._blocks.get(block_id)
        if block is None:
            ordinal = self._followers.get(before, 0)
            self._followers[before] = ordinal + 1
            block = self._blocks[block_id] = [self._marker(ordinal), *self._source.cut(self._block_tokens - 1)][
                : self._block_tokens
            ]
        return block

    def _marker(self, ordinal: int) -> int:
        """Another token for each ordinal, as far as the vocabulary lasts."""
        while len(self._markers) <= ordinal and (token_id := next(self._more_markers, None)) is not None:
            self._markers.append(token_id)
        return self._markers[ordinal % len(self._markers)]


def _markers(tokenizer: Tokenizer) -> Iterator[int]:
    """All plain tokens: those that are a word with a space before it first, then the others."""
    pieces = tokenizer.pieces
    for words in (True, False):
        for token_id in range(tokenizer.vocab_size):
            piece = pieces[token_id]
            word = piece[:1] == b" " and piece[1:].isalpha()
            if piece and word == words and token_id not in pieces.special_ids:
                yield token_id
