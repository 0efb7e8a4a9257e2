from __future__ import annotations

import pytest

from forebay.kvcache import PrefixCache

HASHES = [bytes([i]) for i in range(6)]


def filled(windows: list[int | None], missing: list[tuple[int, int]]) -> PrefixCache:
    """Six blocks of 4 tokens in every group, but for the (group, block) pairs in `missing`."""
    cache = PrefixCache(windows, 4)
    for group in range(len(windows)):
        for i, block_hash in enumerate(HASHES):
            if (group, i) not in missing:
                assert cache.insert(group, block_hash, i)
    return cache


@pytest.mark.parametrize(
    ("windows", "missing", "hit"),
    [
        ([None], [], 6),
        ([None], [(0, 0)], 0),
        ([None], [(0, 4)], 4),
        ([None, None], [(0, 5), (1, 3)], 3),
        ([None, 4], [(1, 0), (1, 1)], 6),  # outside the window: not needed
        ([None, 4], [(1, 5)], 5),
        ([None, 4], [(1, 4)], 6),  # the next row at 24 sees 21 and up
        ([None, 5], [(1, 4)], 6),  # 20 and up
        ([None, 6], [(1, 4)], 4),  # 19 and up, which is in block 4
        ([None, 4], [(0, 5), (1, 4)], 4),
        ([4], [(0, 0), (0, 2), (0, 3), (0, 5)], 5),  # 4 is enough for a hit of 5
        ([4], [(0, 1), (0, 3), (0, 5)], 5),
        ([9], [(0, 1), (0, 4), (0, 5)], 4),  # 16 sees 8 and up: blocks 2 and 3
        ([10], [(0, 1), (0, 4), (0, 5)], 1),
        ([1], [(0, i) for i in range(6)], 6),  # a row that sees only itself needs no past
    ],
)
def test_the_longest_hit_is_usable_by_every_group(
    windows: list[int | None], missing: list[tuple[int, int]], hit: int
) -> None:
    assert filled(windows, missing).longest_hit(HASHES, 100) == hit


def test_when_all_tokens_are_cached_the_window_is_that_of_the_last_token() -> None:
    assert filled([5], [(0, 4)]).longest_hit(HASHES, 25) == 6
    assert filled([5], [(0, 4)]).longest_hit(HASHES, 24) == 4  # row 23 sees 19 and up


def test_the_first_block_of_a_content_stays() -> None:
    cache = PrefixCache([None], 4)
    assert cache.insert(0, b"x", 1)
    assert not cache.insert(0, b"x", 2)
    assert cache.find(0, b"x") == 1
    cache.remove(0, b"x")
    assert cache.insert(0, b"x", 2)
    cache.clear()
    assert len(cache) == 0
