"""Small objects for cache and scheduler tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.core.request import Request
from forebay.core.sampling_params import SamplingParams
from forebay.kvcache import BlockManager

EOS = 0


def kv_spec(windows: Sequence[int | None] = (None,), block_size: int = 4) -> KVSpec:
    groups = [KVGroup((i,), num_kv_heads=1, head_dim=8, dtype="f32", window=window) for i, window in enumerate(windows)]
    return KVSpec(tuple(groups), block_size)


def request(
    request_id: str = "a",
    prompt: Iterable[int] = (1, 2, 3, 4, 5),
    max_tokens: int = 8,
    *,
    namespace: str = "",
    priority: int = 0,
    arrival_ns: int = 0,
    child_index: int = 0,
    parent_id: str | None = None,
    seed: int = 0,
    ignore_eos: bool = False,
    wants_hidden: bool = False,
) -> Request:
    return Request(
        request_id,
        list(prompt),
        SamplingParams(ignore_eos=ignore_eos),
        max_tokens,
        seed,
        frozenset() if ignore_eos else frozenset([EOS]),
        namespace,
        priority=priority,
        arrival_ns=arrival_ns,
        child_index=child_index,
        parent_id=parent_id,
        wants_hidden=wants_hidden,
    )


def check_balance(blocks: BlockManager, live: Iterable[Request]) -> None:
    """Every reference is in exactly the tables of `live`; every block is used, cached or free, in one state only."""
    tables = [blocks.block_tables(r) for r in live]
    for group, pool in enumerate(blocks.pools):
        held = Counter(block for table in tables for block in table[group] if block >= 0)
        assert all(pool[i].ref_count == held[i] for i in range(pool.num_blocks))
        assert pool.num_used == len(held)
        findable = sum(pool[i].block_hash is not None for i in range(pool.num_blocks) if i not in held)
        assert pool.num_cached == findable
        assert pool.num_used + pool.num_cached + pool.num_free == pool.num_blocks
    usage = blocks.usage()
    assert usage.total == usage.used + usage.free + usage.cached
    assert usage.promised >= 0
    assert usage.slack_slots >= 0
    if not tables:
        assert usage.used == usage.promised == usage.slack_slots == 0
