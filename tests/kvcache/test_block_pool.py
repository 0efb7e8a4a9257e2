from __future__ import annotations

import pytest

from forebay.errors import InternalError
from forebay.kvcache import BlockPool


def test_takes_free_blocks_first_and_then_the_least_recently_used_cached_one() -> None:
    evicted: list[bytes] = []
    pool = BlockPool(3, evicted.append)
    blocks = [pool.take() for _ in range(3)]
    for block in blocks[:2]:
        pool.set_hash(block, bytes([block]))
    for block in (1, 0, 2):
        pool.release(block)
    assert (pool.num_used, pool.num_cached, pool.num_free, pool.num_available) == (0, 2, 1, 3)
    assert [pool.take() for _ in range(3)] == [2, 1, 0]
    assert evicted == [b"\x01", b"\x00"]
    assert pool[0].block_hash is None


def test_a_shared_block_is_used_until_the_last_reader_releases_it() -> None:
    pool = BlockPool(2, lambda _: None)
    block = pool.take()
    pool.set_hash(block, b"x")
    pool.share(block)
    pool.release(block)
    assert pool.num_used == 1
    pool.release(block)
    assert (pool.num_used, pool.num_cached) == (0, 1)
    pool.share(block)  # from the cache back into use
    assert (pool.num_used, pool.num_cached, pool[block].ref_count) == (1, 0, 1)


def test_misuse_is_an_error() -> None:
    pool = BlockPool(1, lambda _: None)
    pool.release(pool.take())
    with pytest.raises(InternalError, match="released more often"):
        pool.release(0)
    pool.take()
    with pytest.raises(InternalError, match="num_blocks=1"):
        pool.take()


def test_clear_hashes_frees_cached_blocks_and_hides_used_ones() -> None:
    pool = BlockPool(3, lambda _: None)
    for block in (pool.take(), pool.take()):
        pool.set_hash(block, bytes([block]))
    pool.release(0)
    pool.clear_hashes()
    assert (pool.num_used, pool.num_cached, pool.num_free) == (1, 0, 2)
    pool.release(1)
    assert (pool.num_cached, pool.num_free) == (0, 3)
