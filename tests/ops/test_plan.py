"""The native Plan as a whole: one answer through a small decoder, what is checked, tracing, closing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.errors import ProfileError
from forebay.ops.native import NativeBackend, NativePlan
from forebay.ops.protocol import Backend, RopeTable, StepBatch
from forebay.ops.reference.checksum import row_checksums
from forebay.ops.registry import create_backend
from tests.ops.harness import (
    GENERIC,
    ISAS,
    NO_KV,
    REFERENCE,
    bits,
    limits,
    random_tensor,
    sample_batch,
    step,
    variants,
)

VOCAB, WIDTH, HEADS, KV_HEADS, HEAD_DIM, INNER = 97, 64, 4, 2, 16, 96
KV = KVSpec(
    groups=(KVGroup((0, 2), KV_HEADS, HEAD_DIM, "f16"), KVGroup((1,), KV_HEADS, HEAD_DIM, "f16", window=12)),
    block_size=8,
)
BLOCKS = 24
LIMITS = replace(limits(64, requests=4, model_len=128, num_blocks=BLOCKS), max_logit_rows=16)
ANGLES = np.arange(128)[:, None] * 100.0 ** (-np.arange(8) / 8)[None, :]
ROPE = RopeTable(np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32))


def decoder(ops: Any, formats: Sequence[str] = ("q4_1", "f16", "q5_0", "q8_0")) -> None:
    """Three layers with mixed formats and windows; the head shares the embedding, of the last format."""
    rng = np.random.default_rng(1)
    norm = np.ones(WIDTH, np.float32)
    embedding = random_tensor(rng, formats[-1], VOCAB, WIDTH)
    ops.segment("embed")
    x = ops.scale(ops.embed(embedding), 3.0)
    for layer, name in enumerate(formats[:-1]):
        q, k, v, o, gate, up, down = (
            random_tensor(rng, name, rows, columns)
            for rows, columns in [
                (64, WIDTH),
                (32, WIDTH),
                (32, WIDTH),
                (WIDTH, 64),
                (INNER, WIDTH),
                (INNER, WIDTH),
                (WIDTH, INNER),
            ]
        )
        ops.segment(f"layers.{layer}.attention")
        h = ops.rms_norm(x, norm, 1e-5)
        ops.kv_write(layer, ops.rope(ops.linear(h, k), HEAD_DIM, ROPE), ops.linear(h, v))
        x = ops.add(x, ops.linear(ops.attention(ops.rope(ops.linear(h, q), HEAD_DIM, ROPE), layer, 0.25), o))
        ops.segment(f"layers.{layer}.mlp")
        h = ops.rms_norm(x, norm, 1e-5)
        x = ops.add(x, ops.linear(ops.act_mul(ops.linear(h, gate), ops.linear(h, up), "silu"), down))
    ops.segment("head")
    h = ops.rms_norm(ops.rows(x), norm, 1e-5)
    ops.hidden(h)
    ops.logits(ops.softcap(ops.linear(h, embedding), 30.0))


def compiled(backend: Backend) -> Any:
    return backend.compile(decoder, KV, LIMITS)


TOKENS = np.random.default_rng(2).integers(0, VOCAB, 50).tolist()
TABLE = list(range(7, 14))


def chunk(
    start: int, stop: int, *, rows: int = 1, hidden_rows: Sequence[int] | None = None, **columns: Any
) -> StepBatch:
    """Tokens [start, stop) of one request, logits of the last `rows`."""
    slots = [TABLE[p // 8] * 8 + p % 8 for p in range(start, stop)]
    count = stop - start
    return step(
        TOKENS[start:stop],
        range(start, stop),
        slots=[slots, slots],
        tables=[[TABLE], [TABLE]],
        logit_rows=range(count - rows, count),
        sample=sample_batch(rows, **columns),
        hidden_rows=hidden_rows,
    )


def test_near_the_reference() -> None:
    """Float weights; what is left is float32 rounding, which may also move a cached f16 by an ulp (2^-11)."""
    ours, theirs = (b.compile(partial(decoder, formats=["f32"] * 4), KV, LIMITS) for b in (GENERIC, REFERENCE))
    for start, stop in [(0, 20), (20, 49), (49, 50)]:
        got, wanted = ours.run_logits(chunk(start, stop)), theirs.run_logits(chunk(start, stop))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


def test_one_answer_over_instruction_sets_threads_and_chunks() -> None:
    wanted = bits(compiled(GENERIC).run_logits(chunk(0, 50)))
    for backend in variants():
        for edges in [[0, 50], [0, 1, 2, 35, 50], [0, 16, 32, 48, 49, 50]]:
            plan = compiled(backend)
            for a, b in pairwise(edges):
                got = plan.run_logits(chunk(a, b))
            assert (bits(got) == wanted).all(), (backend.choices(), edges)
            plan.close()


def test_run_samples_from_the_same_logits() -> None:
    plan = compiled(NativeBackend(threads=2))
    logits = plan.run_logits(chunk(0, 30, rows=5))
    out = plan.run(chunk(0, 30, rows=5, num_logprobs=3))
    assert (out.token == logits.argmax(axis=1)).all()
    assert (out.top_ids[:, 0] == out.token).all()
    assert out.ok.all()


def test_what_runs_has_the_bits_of_what_was_recorded() -> None:
    """A trace runs the ops as recorded; a step runs them fused, with outputs or, of many rows, rows shared."""
    for backend in variants():
        plan = compiled(backend)
        for batch in (chunk(0, 49, rows=16), chunk(49, 50)):
            name, sums = plan.trace(batch)[-1]
            assert name == "head/logits"
            assert (row_checksums(plan.run_logits(batch)) == sums).all(), backend.choices()


def test_hidden_rows_are_those_that_were_marked() -> None:
    """The bits of the program as recorded, of the rows that ask and no others; who does not ask gets none."""
    for backend in variants():
        plan = compiled(backend)
        for batch, asked in [
            (chunk(0, 49, rows=16, hidden_rows=[0, 3, 15]), [0, 3, 15]),
            (chunk(49, 50, hidden_rows=[0]), [0]),
            (chunk(49, 50, hidden_rows=[]), []),
        ]:
            trace = dict(plan.trace(batch))  # of ops with one name the last
            out = plan.run(batch)
            assert out.hidden is not None
            assert out.hidden.shape == (len(asked), WIDTH)
            assert (row_checksums(out.hidden) == trace["head/rms_norm"][asked]).all(), backend.choices()
        assert plan.run(chunk(49, 50)).hidden is None


def test_hidden_rows_are_near_the_reference() -> None:
    ours, theirs = (b.compile(partial(decoder, formats=["f32"] * 4), KV, LIMITS) for b in (GENERIC, REFERENCE))
    batch = chunk(0, 20, rows=5, hidden_rows=[1, 4])
    got, wanted = ours.run(batch).hidden, theirs.run(batch).hidden
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("marked", ["summand", "product"])
def test_fusion_keeps_a_marked_value(marked: str) -> None:
    """A linear before a sum, and a gated product before a quantized linear, are fused away unless they are marked."""
    rng = np.random.default_rng(3)
    table, square, wide, down = (
        random_tensor(rng, "q8_0", rows, columns) for rows, columns in [(8, 64), (64, 64), (96, 64), (64, 96)]
    )

    def forward(ops: Any) -> None:
        ops.segment("test")
        x = ops.rows(ops.embed(table))
        if marked == "summand":
            h = ops.linear(x, square)
            ops.hidden(h)
            ops.logits(ops.add(x, h))
        else:
            h = ops.act_mul(ops.linear(x, wide), ops.linear(x, wide), "silu")
            ops.hidden(h)
            ops.logits(ops.linear(h, down))

    batch = step(list(range(8)), hidden_rows=[2, 5])
    wanted = REFERENCE.compile(forward, NO_KV, limits(8)).run(batch).hidden
    for backend in variants():
        plan = backend.compile(forward, NO_KV, limits(8))
        got = plan.run(batch).hidden
        assert got is not None
        recorded = dict(plan.trace(batch))["test/linear" if marked == "summand" else "test/act_mul"]
        assert (row_checksums(got) == recorded[[2, 5]]).all()
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


def test_wrong_marks_are_refused() -> None:
    table = random_tensor(np.random.default_rng(1), "f32", 4, 16)

    def forward(ops: Any, kind: str) -> None:
        x = ops.embed(table)
        if kind == "all rows":
            ops.hidden(x)
        x = ops.rows(x)
        for _ in range(2 if kind == "twice" else 0):
            ops.hidden(x)
        ops.logits(x)

    for kind, message in [("all rows", "must be the step's logit rows"), ("twice", "already marked")]:
        with pytest.raises(ValueError, match=message):
            GENERIC.compile(partial(forward, kind=kind), NO_KV, limits(4))
    for backend in (GENERIC, REFERENCE):
        plan = backend.compile(partial(forward, kind="none"), NO_KV, limits(4))
        with pytest.raises(ValueError, match="marked no hidden state"):
            plan.run(step([1], hidden_rows=[0]))


def test_trace_names_ops_and_shows_where_two_runs_part() -> None:
    plan = compiled(GENERIC)
    first = plan.trace(chunk(0, 30))
    assert [name for name, _ in first] == [name for name, _ in compiled(REFERENCE).trace(chunk(0, 30))]
    for backend in variants():
        again = compiled(backend).trace(chunk(0, 30))
        assert all((a[1] == b[1]).all() for a, b in zip(first, again, strict=True))
    other = chunk(0, 30)
    other.token[20] = (other.token[20] + 1) % VOCAB
    parted = [
        (name, int(np.flatnonzero(a != b)[0]))
        for (name, a), (_, b) in zip(first, plan.trace(other), strict=True)
        if (a != b).any()
    ]
    assert parted[0] == ("embed/embed", 20)


def test_segments_count_their_completions() -> None:
    plan = compiled(NativeBackend(threads=2))
    for _ in range(3):
        plan.run(chunk(0, 4))
    done = plan.segments_done()
    assert [name for name, _ in done][:2] == ["embed", "layers.0.attention"]
    assert {count for _, count in done} == {3}


def test_an_empty_step() -> None:
    plan = compiled(GENERIC)
    empty = step([], slots=[[], []], tables=[np.zeros((0, 4)), np.zeros((0, 4))])
    assert plan.run(empty).token.shape == (0,)
    assert plan.run_logits(empty).shape == (0, VOCAB)


def test_a_step_without_logits() -> None:
    plan = compiled(GENERIC)
    assert plan.run(chunk(0, 9, rows=0)).token.shape == (0,)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "token": ({"token": [0, VOCAB, 0]}, r"token\[1\] is 97"),
    "negative token": ({"token": [-1, 0, 0]}, r"token\[0\] is -1"),
    "position": ({"position": [126, 127, 128]}, r"position\[2\] is 128"),
    "gap": ({"position": [0, 2, 3]}, r"position\[1\] is 2"),
    "request": ({"request": [0, 0, 2]}, r"request\[2\] is 2"),
    "rows apart": ({"request": [0, 1, 0], "position": [0, 0, 1]}, "not adjacent"),
    "slot": ({"slots": [[0, 1, BLOCKS * 8], [0, 1, 2]]}, r"slots\[0\]\[2\] is 192"),
    "short slots": ({"slots": [[0, 1], [0, 1, 2]]}, "slots has 2 entries, expected 3"),
    "missing group": ({"slots": [[0, 1, 2]]}, "one entry per KV group"),
    "block": ({"tables": [[[0], [0]], [[BLOCKS], [0]]]}, r"block_tables\[1\]\[0\]\[0\] is 24"),
    "missing block": ({"tables": [[[-1], [0]], [[0], [0]]]}, r"block_tables\[0\]\[0\]\[0\] is -1"),
    "short table": ({"position": [8, 9, 10]}, r"block_tables\[0\]\[0\]\[1\] is -1"),
    "logit row": ({"logit_rows": [3]}, r"logit_rows\[0\] is 3"),
    "logit order": ({"logit_rows": [1, 1]}, "above the one before"),
    "hidden row": ({"hidden_rows": [3]}, r"hidden_rows\[0\] is 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_step_out_of_range_is_refused(name: str) -> None:
    plan, (change, message) = compiled(GENERIC), WRONG[name]
    good: dict[str, Any] = {
        "token": [1, 2, 3],
        "position": [0, 1, 2],
        "request": [0, 0, 0],
        "slots": [[0, 1, 2], [0, 1, 2]],
        "tables": [[[0], [0]], [[0], [0]]],
    }
    plan.run_logits(step(**good))
    with pytest.raises(ValueError, match=message):
        plan.run_logits(step(**{**good, **change}))


def test_a_step_over_the_limits_is_refused() -> None:
    plan = compiled(GENERIC)
    with pytest.raises(ValueError, match="65 tokens, the plan allows 64"):
        plan.run_logits(step([0] * 65, slots=[[-1] * 65] * 2, tables=[[TABLE * 2]] * 2, logit_rows=[0]))
    with pytest.raises(ValueError, match="5 requests, the plan allows 4"):
        plan.run_logits(step([0], slots=[[-1]] * 2, tables=[[TABLE] * 5] * 2))
    with pytest.raises(ValueError, match="17 logit rows, the plan allows 16"):
        plan.run_logits(chunk(0, 20, rows=17))


def test_the_highest_name_of_a_request_without_a_cache() -> None:
    def forward(ops: Any) -> None:
        ops.segment("test")
        ops.logits(ops.rows(ops.embed(random_tensor(np.random.default_rng(1), "f32", 4, 16))))

    plan = GENERIC.compile(forward, NO_KV, limits(4, requests=4))
    with pytest.raises(ValueError, match="step has 2147483647 requests, the plan allows 4"):
        plan.run_logits(step([1], request=[2**31 - 1]))


def test_a_closed_plan_is_refused() -> None:
    plan = compiled(GENERIC)
    plan.close()
    with pytest.raises(ValueError, match="closed"):
        plan.run(chunk(0, 1))


def test_plans_run_side_by_side() -> None:
    wanted = bits(compiled(GENERIC).run_logits(chunk(0, 50)))
    plans = [compiled(NativeBackend(threads=2)) for _ in range(3)]
    wrong: list[int] = []

    def work(index: int, plan: NativePlan) -> None:
        for _ in range(20):
            if not (bits(plan.run_logits(chunk(0, 50))) == wanted).all():
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i, plan)) for i, plan in enumerate([*plans, plans[0]])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_backend_says_what_it_chose() -> None:
    backend = create_backend("native", isa="auto", threads=2)
    assert backend.choices() == {"isa": (ISAS[-1], "the best of " + ", ".join(ISAS)), "threads": (2, "as set")}
    assert ISAS[0] == "generic"
    for settings, message in [({"isa": "mmx"}, "generic"), ({"threads": 0}, "at least 1")]:
        with pytest.raises(ProfileError, match=message):
            NativeBackend(**settings)  # type: ignore[arg-type]  # wrong on purpose
