from __future__ import annotations

import pytest

from forebay.core.request import Request
from forebay.errors import InternalError, ProfileError
from forebay.kvcache import BlockManager
from tests.kvcache.helpers import check_balance, kv_spec, request


def manager(
    windows: tuple[int | None, ...] = (None,),
    num_blocks: int = 8,
    *,
    prefix_cache: bool = True,
    overcommit: float = 1.0,
    chunk_size: int | None = None,
) -> BlockManager:
    """Blocks of 4 slots."""
    return BlockManager(
        kv_spec(windows), num_blocks, prefix_cache=prefix_cache, overcommit=overcommit, chunk_size=chunk_size
    )


def compute(blocks: BlockManager, r: Request, num_tokens: int) -> None:
    assert blocks.append(r, num_tokens)
    r.num_computed_tokens = num_tokens
    blocks.commit(r, num_tokens)


def test_a_promise_is_rounded_up_per_request_and_group() -> None:
    blocks = manager((None, None), num_blocks=5)
    a, b, c = (request(name, range(3), max_tokens=2) for name in "abc")  # 5 tokens: 2 blocks
    assert blocks.promise(a)
    assert blocks.promise(b)
    assert blocks.num_promised(a) == 4
    assert not blocks.promise(c)
    blocks.free(a)
    assert blocks.promise(c)
    assert blocks.usage().promised == 8


def test_usage_counts_promises_taken_and_slack() -> None:
    blocks = manager()
    a = request(prompt=range(5), max_tokens=8)
    blocks.promise(a)
    blocks.append(a, 5)
    usage = blocks.usage()
    assert (usage.total, usage.used, usage.free, usage.cached) == (8, 2, 6, 0)
    assert (usage.promised, usage.slack_slots) == (2, 3)


def test_a_promise_is_a_limit_too() -> None:
    blocks = manager()
    a = request(prompt=range(3), max_tokens=1)
    blocks.promise(a)
    with pytest.raises(InternalError, match="promised 1 blocks of group 0"):
        blocks.append(a, 5)


def test_overcommit_promises_more_and_append_may_fail() -> None:
    blocks = manager(num_blocks=4, overcommit=1.5)
    a, b = request("a", range(4), max_tokens=8), request("b", range(4), max_tokens=8)
    assert blocks.promise(a)
    assert blocks.promise(b)
    assert blocks.append(a, 12)
    assert blocks.append(b, 4)
    assert not blocks.append(b, 5)
    assert blocks.block_tables(b) == ([3],)  # all or nothing
    assert not manager(num_blocks=4, overcommit=2.0).promise(request(max_tokens=12))  # can never fit, even so


def test_a_windowed_group_promises_its_window_and_a_chunk() -> None:
    blocks = manager((None, 6), num_blocks=100, chunk_size=5)
    a = request(prompt=range(40), max_tokens=60)
    blocks.promise(a)
    assert blocks.num_promised(a) == 25 + 4  # 10 adjacent tokens touch at most 4 blocks
    assert blocks.largest_total_tokens() == 400
    assert manager((6,), chunk_size=5).largest_total_tokens() is None
    assert manager((6,), num_blocks=3, chunk_size=5).largest_total_tokens() == 12


def test_a_window_lets_go_of_what_no_later_row_sees() -> None:
    blocks = manager((None, 6), chunk_size=8)
    a = request(prompt=range(20), max_tokens=4)
    blocks.promise(a)
    compute(blocks, a, 8)  # row 8 sees 3 and up
    assert blocks.block_tables(a) == ([0, 1], [0, 1])
    assert blocks.append(a, 16)
    assert blocks.block_tables(a)[1] == [0, 1, 2, 3]
    blocks.commit(a, 16)  # row 16 sees 11 and up
    assert blocks.block_tables(a) == ([0, 1, 2, 3], [-1, -1, 2, 3])
    check_balance(blocks, [a])
    blocks.free(a)
    check_balance(blocks, [])


def test_a_hit_shares_full_committed_blocks_and_reports_them() -> None:
    blocks = manager()
    a, b = request("a", range(10), 4), request("b", [*range(9), 99, 98], 4)
    blocks.promise(a)
    compute(blocks, a, 10)
    blocks.promise(b)
    assert blocks.match_prefix(b) == 8
    assert (b.num_computed_tokens, b.num_cached_tokens, b.write_start) == (8, 8, 8)
    assert blocks.block_tables(b)[0] == blocks.block_tables(a)[0][:2]
    compute(blocks, b, 11)
    check_balance(blocks, [a, b])


def test_a_wholly_cached_prompt_computes_its_last_token_and_writes_nothing() -> None:
    blocks = manager((None, 5))
    a, b = request("a", range(8)), request("b", range(8))
    blocks.promise(a)
    compute(blocks, a, 8)
    blocks.promise(b)
    assert blocks.match_prefix(b) == 8
    assert (b.num_computed_tokens, b.num_cached_tokens, b.write_start) == (7, 8, 8)
    compute(blocks, b, 8)
    assert blocks.append(b, 9)
    check_balance(blocks, [a, b])


@pytest.mark.parametrize("change", ["namespace", "prefix_cache", "uncommitted"])
def test_no_hit(change: str) -> None:
    blocks = manager(prefix_cache=change != "prefix_cache")
    a, b = request("a", range(8)), request("b", range(8), namespace="tenant" if change == "namespace" else "")
    blocks.promise(a)
    if change == "uncommitted":
        blocks.append(a, 8)
    else:
        compute(blocks, a, 8)
    blocks.promise(b)
    assert blocks.match_prefix(b) == 0
    assert (b.num_computed_tokens, b.write_start) == (0, 0)


def test_a_second_copy_of_the_same_content_stays_private() -> None:
    blocks = manager()
    a, b = request("a", range(4)), request("b", range(4))
    for r in (a, b):
        blocks.promise(r)
    for r in (a, b):
        compute(blocks, r, 4)
    blocks.free(b)
    assert (blocks.usage().cached, blocks.usage().used) == (0, 1)
    blocks.free(a)
    assert (blocks.usage().cached, blocks.usage().used) == (1, 0)


def test_cached_blocks_are_evicted_on_demand_from_the_tail_of_the_oldest() -> None:
    blocks = manager(num_blocks=4)
    a, b, c = request("a", range(12), 4), request("b", range(50, 56), 2), request("c", range(12), 4)
    blocks.promise(a)
    compute(blocks, a, 12)
    blocks.free(a)
    assert blocks.usage().cached == 3
    blocks.promise(b)
    compute(blocks, b, 6)  # takes the free block and the tail of a
    blocks.free(b)
    blocks.promise(c)
    assert blocks.match_prefix(c) == 8


def test_rejected_drafts_are_truncated_and_never_committed() -> None:
    blocks = manager()
    a = request(prompt=range(7), max_tokens=12)
    blocks.promise(a)
    compute(blocks, a, 7)
    a.output_token_ids, a.draft_token_ids = [50], [51, 52, 53]
    blocks.append(a, 11)
    with pytest.raises(InternalError, match="8 are not drafts"):
        blocks.commit(a, 11)
    blocks.truncate(a, 8)
    assert len(blocks.block_tables(a)[0]) == 2
    a.draft_token_ids = []
    blocks.commit(a, 8)
    with pytest.raises(InternalError, match="committed length"):
        blocks.truncate(a, 7)
    a.output_token_ids += [60, 61]
    with pytest.raises(InternalError, match="8 have slots"):
        blocks.commit(a, 9)


def test_seal_keeps_committed_tokens_from_being_truncated() -> None:
    blocks = manager()
    a = request(prompt=range(6))
    blocks.promise(a)
    compute(blocks, a, 6)
    with pytest.raises(InternalError, match="6 committed"):
        blocks.seal(a, 7)
    blocks.seal(a, 4)
    with pytest.raises(InternalError, match="sealed length"):
        blocks.truncate(a, 3)
    with pytest.raises(InternalError, match="4 are sealed"):
        blocks.seal(a, 3)


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize(("prompt", "shared", "computed"), [(10, 8, 8), (8, 8, 7), (3, 0, 0)])
def test_a_fork_shares_full_blocks_only(prefix_cache: bool, prompt: int, shared: int, computed: int) -> None:
    blocks = manager(prefix_cache=prefix_cache)
    a, b = request("a", range(prompt), 4), request("b", range(prompt), 4, parent_id="a", child_index=1)
    blocks.promise(a)
    compute(blocks, a, prompt)
    blocks.promise(b)
    assert blocks.fork(a, b) == shared
    assert (b.num_computed_tokens, b.write_start, b.num_cached_tokens) == (computed, shared, 0)
    compute(blocks, b, prompt)
    assert blocks.append(b, prompt + 1)
    last = [blocks.block_tables(r)[0][-1] for r in (a, b)]
    assert prompt % 4 == 0 or last[0] != last[1]
    check_balance(blocks, [a, b])
    blocks.free(a)
    blocks.free(b)
    check_balance(blocks, [])


def test_a_fork_shares_nothing_that_the_parents_window_has_passed() -> None:
    blocks = manager((None, 4), num_blocks=16, prefix_cache=False, chunk_size=16)
    a, b = request("a", range(11)), request("b", range(11))
    blocks.promise(a)
    compute(blocks, a, 11)  # row 11 sees 8 and up, the child's row 8 would see 5 and up
    blocks.promise(b)
    assert blocks.fork(a, b) == 0
    assert (b.num_computed_tokens, b.write_start) == (0, 0)
    with pytest.raises(InternalError, match="differ in prompt"):
        blocks.fork(a, request("b", range(12)))


def test_reset_forgets_idle_blocks_and_hides_those_in_use() -> None:
    blocks = manager()
    a, b, c = request("a", range(6)), request("b", range(50, 54), 4), request("c", range(6))
    for r, n in ((a, 6), (b, 4)):
        blocks.promise(r)
        compute(blocks, r, n)
    blocks.free(b)
    assert blocks.reset_prefix_cache()
    assert blocks.usage().cached == 0
    a.output_token_ids = [1, 2]
    compute(blocks, a, 8)  # a second full block, of content computed before the reset
    blocks.free(a)
    assert blocks.usage().free == 8
    blocks.promise(c)
    assert blocks.match_prefix(c) == 0
    assert not manager(prefix_cache=False).reset_prefix_cache()


def test_a_preempted_request_keeps_what_it_reported_as_cached() -> None:
    blocks = manager()
    a = request(prompt=range(8), max_tokens=8)
    blocks.promise(a)
    blocks.match_prefix(a)
    compute(blocks, a, 8)
    blocks.free(a)
    a.num_preemptions, a.num_computed_tokens = 1, 0
    a.output_token_ids = [9]
    blocks.promise(a)
    assert blocks.match_prefix(a) == 8
    assert (a.num_computed_tokens, a.num_cached_tokens) == (8, 0)


def test_settings_are_checked() -> None:
    with pytest.raises(ProfileError, match="overcommit must be at least"):
        manager(overcommit=0.5)
    with pytest.raises(ProfileError, match="num_blocks"):
        manager(num_blocks=0)
