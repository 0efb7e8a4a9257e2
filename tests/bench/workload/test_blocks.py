"""Equal block ids at the beginning of two prompts are equal tokens, and nothing else is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.bench.workload.blocks import BlockText
from forebay.bench.workload.text import TextSource
from forebay.bench.workload.traces import Selection, TraceRow, read_trace, select_rows
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer
from tests.bench.workload.test_text import common_tokens
from tests.support.shared import shared_path
from tests.tokenizer.vocabularies import stories_tokenizer


def common_ids(one: TraceRow, other: TraceRow) -> int:
    return common_tokens(list(one.block_ids), list(other.block_ids))


def expected_sharing(one: TraceRow, other: TraceRow, block: int) -> int:
    return min(common_ids(one, other) * block, one.input_tokens, other.input_tokens)


def test_prompts_of_a_real_trace_share_exactly_the_prefixes_it_says(smollm2: Tokenizer) -> None:
    trace = read_trace(shared_path("traces/mooncake/conversation_trace.jsonl.gz"))
    chosen = select_rows(trace, Selection(scale_length=1 / 16, limit=300, max_model_len=2048))
    block = chosen.block_tokens
    assert block == 32
    text = BlockText(smollm2, TextSource(smollm2), block)
    prompts = [text.prompt(row) for row in chosen.rows]
    assert [len(prompt) for prompt in prompts] == [row.input_tokens for row in chosen.rows]
    # in sorted order neighbours share the most: if they share what they must, so do all others
    order = sorted(range(len(prompts)), key=lambda i: prompts[i])
    shared = [expected_sharing(chosen.rows[i], chosen.rows[j], block) for i, j in pairwise(order)]
    assert [common_tokens(prompts[i], prompts[j]) for i, j in pairwise(order)] == shared
    for i in range(0, 300, 17):
        for j in range(i + 1, 300, 13):
            found = common_tokens(prompts[i], prompts[j])
            assert found == expected_sharing(chosen.rows[i], chosen.rows[j], block)
    assert sum(length > block for length in shared) > 20  # more than the first block, which almost all have


@settings(max_examples=40, deadline=None)
@given(
    paths=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=2, max_size=12),
    block=st.integers(1, 20),
    data=st.data(),
)
def test_any_tree_of_blocks_is_shared_as_it_says(
    smollm2: Tokenizer, paths: list[list[int]], block: int, data: st.DataObject
) -> None:
    names: dict[tuple[int, ...], int] = {}
    rows = []
    for path in paths:
        ids = tuple(names.setdefault(tuple(path[: i + 1]), len(names)) for i in range(len(path)))
        rows.append(TraceRow(0.0, (len(ids) - 1) * block + data.draw(st.integers(1, block)), 1, ids))
    text = BlockText(smollm2, TextSource(smollm2), block)
    prompts = [text.prompt(row) for row in rows]
    for one, first in zip(rows, prompts, strict=True):
        assert len(first) == one.input_tokens
        for other, second in zip(rows, prompts, strict=True):
            assert common_tokens(first, second) == expected_sharing(one, other, block)


def test_tokens_in_blocks_seen_before_are_counted(smollm2: Tokenizer) -> None:
    text = BlockText(smollm2, TextSource(smollm2), 10)
    for new, ids in ((25, (1, 2, 3)), (30, (1, 2, 4)), (28, (1, 2, 3)), (5, (9,))):
        text.prompt(TraceRow(0.0, new, 1, ids))
    assert text.tokens == 25 + 30 + 28 + 5
    assert text.shared_tokens == 0 + 20 + 25 + 0  # of the third block's 8 tokens, 5 had been sent


def test_more_followers_than_the_vocabulary_has_tokens_still_differ_early() -> None:
    tokenizer = stories_tokenizer()  # 512 tokens
    text = BlockText(tokenizer, TextSource(tokenizer), 16)
    prompts = [text.prompt(TraceRow(0.0, 16, 1, (i,))) for i in range(700)]
    assert len({tuple(prompt[:9]) for prompt in prompts}) == 700
    assert len({prompt[0] for prompt in prompts}) > 400


def test_a_row_without_its_blocks_is_refused(smollm2: Tokenizer) -> None:
    text = BlockText(smollm2, TextSource(smollm2), 10)
    with pytest.raises(BenchError, match="25 tokens has 2 block ids"):
        text.prompt(TraceRow(0.0, 25, 1, (1, 2)))
