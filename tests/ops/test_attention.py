"""kv_write and attention: odd shapes, windows, chunks, blocks; unseen keys never leak; nothing but the keys matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from forebay.core.kv_spec import KVSpec
from forebay.ops.native import NativeBackend
from forebay.ops.protocol import Backend, Plan
from forebay.ops.tensor import F32Array
from tests.ops.harness import GENERIC, REFERENCE, bits, f32_tensor, kv_spec, limits, step, variants

BLOCKS = 40


@dataclass
class Case:
    """q, k, v of one request's positions 0 .. n - 1."""

    q: F32Array
    k: F32Array
    v: F32Array
    kv: KVSpec

    @property
    def n(self) -> int:
        return len(self.q)


def case(n: int, *, heads: int = 2, kv_heads: int = 1, head_dim: int = 16, **kv: Any) -> Case:
    rng = np.random.default_rng(n * 100 + head_dim)
    q, k, v = (rng.standard_normal((n, h * head_dim)).astype(np.float32) for h in (heads, kv_heads, kv_heads))
    return Case(q * 2, k, v, kv_spec(kv_heads=kv_heads, head_dim=head_dim, **kv))


def plan_of(backend: Backend, c: Case, max_tokens: int = 256) -> Plan:
    def forward(ops: Any) -> None:
        ops.segment("layers.0.attention")
        ops.kv_write(0, ops.embed(f32_tensor(c.k)), ops.embed(f32_tensor(c.v)))
        ops.logits(ops.rows(ops.attention(ops.embed(f32_tensor(c.q)), 0, 0.25)))

    return backend.compile(forward, c.kv, limits(max_tokens, requests=8, model_len=1024, num_blocks=BLOCKS))


def table_of(c: Case, seed: int = 0) -> list[int]:
    """Distinct blocks in a shuffled order, enough for every position."""
    count = -(-c.n // c.kv.block_size)
    return [int(b) for b in np.random.default_rng(seed).permutation(BLOCKS)[:count]]


def chunk(
    c: Case, table: list[int], start: int, stop: int, *, write: bool = True, rows: list[int] | None = None
) -> Any:
    size = c.kv.block_size
    slots = [table[p // size] * size + p % size if write else -1 for p in range(start, stop)]
    return step(range(start, stop), range(start, stop), slots=[slots], tables=[[table]], logit_rows=rows)


def prefill(plan: Plan, c: Case, edges: list[int], seed: int = 0) -> F32Array:
    """Outputs of all positions, computed in chunks that end at `edges`."""
    table = table_of(c, seed)
    return np.concatenate(
        [plan.run_logits(chunk(c, table, a, b)) for a, b in zip([0, *edges], [*edges, c.n], strict=True)]
    )


SHAPES = [
    {"n": 1},
    {"n": 5, "head_dim": 4},
    {"n": 67, "head_dim": 20, "heads": 6, "kv_heads": 2},
    {"n": 131, "head_dim": 64, "heads": 9, "kv_heads": 3, "dtype": "f16"},
    {"n": 97, "head_dim": 80, "heads": 3, "kv_heads": 3, "block_size": 7},
    {"n": 200, "window": 1},
    {"n": 150, "window": 70, "dtype": "f16"},
    {"n": 130, "head_dim": 128, "block_size": 32, "window": 64},
    {"n": 250, "head_dim": 32, "heads": 14, "dtype": "f16"},
    {"n": 90, "head_dim": 20, "heads": 6, "kv_heads": 2, "block_size": 7, "dtype": "int8"},
    {"n": 131, "head_dim": 64, "heads": 9, "kv_heads": 3, "dtype": "int8"},
    {"n": 150, "head_dim": 64, "heads": 7, "window": 70, "dtype": "int8"},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_near_the_reference(shape: dict[str, Any]) -> None:
    c = case(**shape)
    np.testing.assert_allclose(
        prefill(plan_of(GENERIC, c), c, []), prefill(plan_of(REFERENCE, c), c, []), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_variant_and_chunking_has_the_bits_of_generic(shape: dict[str, Any]) -> None:
    c = case(**shape)
    wanted = bits(prefill(plan_of(GENERIC, c), c, []))
    for number, backend in enumerate(variants()):
        for edges in [[], [c.n // 3], sorted({1, c.n // 2, c.n - 1} - {0, c.n})]:
            got = prefill(plan_of(backend, c), c, edges, seed=number)
            assert (bits(got) == wanted).all(), (backend.choices(), edges)


def test_decode_equals_prefill_and_block_size_does_not_matter() -> None:
    wanted = bits(prefill(plan_of(GENERIC, case(70)), case(70), []))
    for block_size in (2, 16, 64):
        c = case(70, block_size=block_size)
        for backend in variants():
            assert (bits(prefill(plan_of(backend, c), c, list(range(1, 70)))) == wanted).all()


@pytest.mark.parametrize("dtype", ["f32", "f16", "int8"])
def test_a_row_whose_segments_many_threads_share_has_its_bits(dtype: str) -> None:
    c = case(620, heads=3, head_dim=64, dtype=dtype)
    edges = [256, 512, 616, 617, 618, 619]
    wanted = bits(prefill(plan_of(GENERIC, c), c, edges))
    for backend in [NativeBackend(threads=threads) for threads in (1, 2, 3, 8)]:
        assert (bits(prefill(plan_of(backend, c), c, edges)) == wanted).all(), backend.choices()


@pytest.mark.parametrize("kv_heads", [1, 3])
def test_a_step_of_many_lengths_gives_every_request_its_own_bits(kv_heads: int) -> None:
    """Requests at contexts 0, 69, 199, 32 and 129 decode, and one computes rows 40 .. 99, all in one step."""
    last, lengths = [0, 69, 199, 32, 129, 99], [1, 1, 1, 1, 1, 60]
    c = case(200, heads=3, kv_heads=kv_heads, head_dim=64, dtype="f16", block_size=32)
    firsts = [end + 1 - count for end, count in zip(last, lengths, strict=True)]
    tables = np.full((6, 7), -1)
    used = 0
    for request, end in enumerate(last):
        blocks = end // 32 + 1
        tables[request, :blocks] = range(used, used + blocks)
        used += blocks

    def columns(request: int, start: int, stop: int) -> tuple[list[int], list[int]]:
        return list(range(start, stop)), [int(tables[request, p // 32]) * 32 + p % 32 for p in range(start, stop)]

    wanted = bits(prefill(plan_of(GENERIC, c), c, []))
    for backend in [*variants(), NativeBackend(threads=3), NativeBackend(threads=8)]:
        plan = plan_of(backend, c)
        for request, first in enumerate(firsts):
            if first:
                position, slots = columns(request, 0, first)
                plan.run_logits(step(position, position, slots=[slots], tables=[[tables[request]]]))
        parts = [columns(r, first, end + 1) for r, (first, end) in enumerate(zip(firsts, last, strict=True))]
        position = [p for part, _ in parts for p in part]
        owner = [r for r, (part, _) in enumerate(parts) for _ in part]
        got = plan.run_logits(
            step(position, position, owner, slots=[[s for _, own in parts for s in own]], tables=[tables])
        )
        assert (bits(got) == wanted[position]).all(), backend.choices()


def batch_of_two(c: Case, blocks: tuple[list[int], list[int]]) -> Any:
    """Both requests decode their last position; request 1 sits in row 0."""
    size, last = c.kv.block_size, c.n - 1
    slots = [blocks[r][last // size] * size + last % size for r in (1, 0)]
    return step([last, last], [last, last], [1, 0], slots=[slots], tables=[list(blocks)])


def test_requests_in_one_step_do_not_mix() -> None:
    c = case(90, kv_heads=2, heads=4)
    count = -(-c.n // c.kv.block_size)
    for backend in variants():
        plan = plan_of(backend, c)
        blocks = (list(range(count)), list(range(count, 2 * count)))
        alone = plan.run_logits(chunk(c, blocks[0], 0, c.n))[-1:]
        plan.run_logits(chunk(c, blocks[1], 0, c.n - 1))
        both = plan.run_logits(batch_of_two(c, blocks))
        assert (bits(both) == bits(np.concatenate([alone, alone]))).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("window", [None, 20])
def test_unseen_keys_never_leak(bad: float, window: int | None) -> None:
    """Slots past a row's position may hold anything: here every slot is filled with `bad` before the request runs."""
    c = case(100, window=window, head_dim=20)
    wanted = bits(prefill(plan_of(GENERIC, c), c, []))
    c.q, c.k, c.v = (np.concatenate([x, np.full_like(x[:1], bad)]) for x in (c.q, c.k, c.v))
    size, table = c.kv.block_size, table_of(c)
    for backend in variants():
        plan = plan_of(backend, c)
        for block in range(BLOCKS):
            slots = [block * size + i for i in range(size)]
            plan.run_logits(step([100] * size, range(size), slots=[slots], tables=[[[block]]]))
        got = np.concatenate([plan.run_logits(chunk(c, table, a, a + 10)) for a in range(0, 100, 10)])
        assert (bits(got) == wanted).all(), backend.choices()


def test_a_block_behind_the_window_may_be_missing() -> None:
    c = case(120, window=30)
    wanted = bits(prefill(plan_of(GENERIC, c), c, []))
    for backend in variants():
        plan, table = plan_of(backend, c), table_of(c)
        plan.run_logits(chunk(c, table, 0, 119))
        gone = [-1 if (b + 1) * c.kv.block_size <= 119 - 30 + 1 else block for b, block in enumerate(table)]
        assert gone.count(-1) == 5
        assert (bits(plan.run_logits(chunk(c, gone, 119, 120))) == wanted[-1:]).all()


def test_slot_minus_one_writes_nothing() -> None:
    c = case(33)
    for backend in variants():
        plan, table = plan_of(backend, c), table_of(c)
        wanted = plan.run_logits(chunk(c, table, 0, 33))
        again = plan.run_logits(chunk(c, table, 32, 33, write=False))
        assert (bits(again) == bits(wanted[-1:])).all()


def test_a_visible_nan_shows_in_the_rows_that_see_it() -> None:
    c = case(80)
    c.k[40, 3] = np.nan
    for backend in [REFERENCE, *variants()]:
        got = prefill(plan_of(backend, c), c, [])
        assert np.isfinite(got[:40]).all()
        assert np.isnan(got[40:]).all()
