"""Counts of tokens: what the chunks say, what usage says, and what is made of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.bench.client.counting import ChunkFacts, Counted, count_tokens, spread


def chunks(*facts: tuple[int, int | None, int | None]) -> list[ChunkFacts]:
    """At 10, 20, ... ns."""
    return [ChunkFacts(10 * (i + 1), *fact) for i, fact in enumerate(facts)]


PLAIN = (4, None, None)

CASES = {
    "one token a chunk": ([PLAIN, PLAIN], 2, True, ((10, 20), (1, 1), "usage")),
    "and the end of sequence": ([PLAIN, PLAIN], 3, True, ((10, 20, 99), (1, 1, 1), "usage")),
    "but not where the length ended it": ([PLAIN, PLAIN], 3, False, ((10, 20), (2, 1), "spread")),
    "no usage": ([PLAIN, PLAIN], None, True, ((10, 20), (1, 1), "assumed")),
    "usage of nothing": ([PLAIN, PLAIN], 0, True, ((10, 20), (1, 1), "assumed")),
    "by length of text": ([(4, None, None), (8, None, None)], 6, False, ((10, 20), (2, 4), "spread")),
    "more chunks than tokens": ([(4, None, None)] * 4, 2, False, ((10, 30), (1, 1), "spread")),
    "running usage": ([(4, 3, None), (4, 2, None)], 5, False, ((10, 20), (3, 2), "chunks")),
    "running usage, end of sequence": ([(4, 3, None), (4, 2, None)], 6, True, ((10, 20, 99), (3, 2, 1), "chunks")),
    "text carried on": ([(4, 2, None), (4, 0, None), (4, 1, None)], 3, False, ((10, 30), (2, 1), "chunks")),
    "entries": ([(4, None, 3), (0, None, 1)], 4, False, ((10, 20), (3, 1), "chunks")),
    "entries without usage": ([(4, None, 3), (0, None, 1)], None, False, ((10, 20), (3, 1), "chunks")),
    "entries that usage contradicts": ([(4, None, 1), (4, None, 1)], 8, False, ((10, 20), (4, 4), "spread")),
    "entries of some": ([(4, None, 3), PLAIN], 2, False, ((10, 20), (1, 1), "usage")),
    "always empty entries": ([(4, None, 0), (4, None, 0)], 2, False, ((10, 20), (1, 1), "usage")),
    "usage that runs backwards": ([(4, 3, None), (4, -1, None)], 2, False, ((10, 20), (1, 1), "usage")),
    "only an end of sequence": ([], 1, True, ((99,), (1,), "usage")),
    "tokens without any text": ([], 5, False, ((99,), (5,), "spread")),
    "nothing": ([], 0, True, ((), (), "usage")),
}


@pytest.mark.parametrize(("facts", "total", "stopped", "expected"), CASES.values(), ids=CASES)
def test_counts(
    facts: list[tuple[int, int | None, int | None]], total: int | None, stopped: bool, expected: Counted
) -> None:
    assert count_tokens(chunks(*facts), total, finish_ns=99, stopped=stopped) == expected


@given(st.integers(1, 200), st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_spread_loses_nothing(total: int, lengths: list[int]) -> None:
    counts = spread(total, lengths)
    assert sum(counts) == total
    assert counts[0] >= 1
    assert min(counts) >= (1 if total >= len(lengths) else 0)
    assert counts == spread(total, lengths)


FACT = st.tuples(st.integers(0, 9), st.none() | st.integers(-2, 5), st.none() | st.integers(0, 5))


@given(st.lists(FACT, max_size=12), st.none() | st.integers(0, 40), st.booleans(), st.booleans())
def test_a_count_is_of_tokens_that_came(
    facts: list[tuple[int, int | None, int | None]], total: int | None, ended: bool, stopped: bool
) -> None:
    counted = count_tokens(chunks(*facts), total, finish_ns=10_000 if ended else None, stopped=stopped and ended)
    assert len(counted.token_ns) == len(counted.token_counts)
    assert all(count >= 1 for count in counted.token_counts)
    assert list(counted.token_ns) == sorted(counted.token_ns)
    if facts:
        assert counted.token_ns[0] == 10  # the first chunk is the first token, whatever is counted
        if total:
            assert sum(counted.token_counts) == total
