"""How many tokens each chunk of an answer bore, from what chunks and usage say."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import NamedTuple


class ChunkFacts(NamedTuple):
    """A chunk that bore tokens. `by_usage`: how far its running usage went on; `by_entries`: its token ids or logprob
    entries. None where it said nothing of the kind."""

    at_ns: int
    text_length: int
    by_usage: int | None
    by_entries: int | None

    @property
    def live(self) -> int:
        """The best count while the answer is still coming."""
        return max(1, self.by_usage or self.by_entries or 1)


class Counted(NamedTuple):
    """token_ns and token_counts of a RequestRecord, counts at least 1, and its counted_by."""

    token_ns: tuple[int, ...]
    token_counts: tuple[int, ...]
    counted_by: str


def count_tokens(chunks: Sequence[ChunkFacts], total: int | None, *, finish_ns: int | None, stopped: bool) -> Counted:
    """total: completion_tokens of the last usage. stopped: the model ended by itself, so that one token more than the
    chunks show is the end-of-sequence token; it has no text, and counts at the time of the finish reason."""
    times = [chunk.at_ns for chunk in chunks]
    invisible_ns = finish_ns if stopped else None
    for stated in ([chunk.by_usage for chunk in chunks], [chunk.by_entries for chunk in chunks]):
        counts = [count for count in stated if count is not None]
        if not chunks or len(counts) < len(chunks) or counts[0] < 1 or min(counts) < 0:
            continue  # the first chunk bears a token, so a first count of 0 is of a server that does not count
        if total is None or total == sum(counts):
            return _kept(times, counts, "chunks")
        if total == sum(counts) + 1 and invisible_ns is not None:
            return _kept([*times, invisible_ns], [*counts, 1], "chunks")
    if not total:
        return _kept(times, [1] * len(times), "assumed" if total is None or times else "usage")
    if total == len(times):
        return _kept(times, [1] * total, "usage")
    if total == len(times) + 1 and invisible_ns is not None:
        return _kept([*times, invisible_ns], [1] * total, "usage")
    if not times:
        return _kept([finish_ns], [total], "spread") if finish_ns is not None else _kept([], [], "spread")
    return _kept(times, spread(total, [chunk.text_length for chunk in chunks]), "spread")


def spread(total: int, lengths: Sequence[int]) -> list[int]:
    """Counts that sum to `total` (>= 1), in proportion to the lengths of the chunks' texts.

    With enough tokens each chunk has 1, and the rest goes by largest remainder, ties to the earlier chunk. With fewer,
    tokens have equal lengths and count where they begin, so the first chunk has one and some have none.
    """
    weights = lengths if sum(lengths) else [1] * len(lengths)
    whole = sum(weights)
    if total < len(weights):
        ends = list(itertools.accumulate(weights))
        counts = [0] * len(weights)
        for token in range(total):
            counts[bisect.bisect_right(ends, token * whole // total) if token else 0] += 1
        return counts
    rest = total - len(weights)
    shares = [divmod(rest * weight, whole) for weight in weights]
    counts = [1 + quota for quota, _ in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: -shares[i][1])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _kept(times: Sequence[int], counts: Sequence[int], counted_by: str) -> Counted:
    """A chunk of 0 tokens only carried on the text of tokens that were counted with the chunk before it."""
    kept = [(at_ns, count) for at_ns, count in zip(times, counts, strict=True) if count > 0]
    return Counted(tuple(at_ns for at_ns, _ in kept), tuple(count for _, count in kept), counted_by)
