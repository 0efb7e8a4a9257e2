"""Requests to columns."""

from __future__ import annotations

from typing import Any

from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.core.sampling_params import SamplingParams
from forebay.core.step import ScheduledRequest
from forebay.runner.input_batch import build_step_batch

KV = KVSpec((KVGroup((0,), 1, 4, "f32"), KVGroup((1,), 1, 4, "f32", window=4)), block_size=4)
VOCAB = 70


def share(
    request_id: str, token_ids: list[int], start: int, tables: tuple[list[int], ...], **more: Any
) -> ScheduledRequest:
    values: dict[str, Any] = {
        "write_start": 0, "num_sampled": 1, "output_position": 0, "sampling": SamplingParams(), "seed": 1,
        "child_index": 0, "tenant": "", "namespace": "", **more,
    }  # fmt: skip
    return ScheduledRequest(request_id=request_id, token_ids=token_ids, start=start, block_tables=tables, **values)


def test_columns_of_a_chunk_and_a_decoding_request() -> None:
    prompt = share("a", [10, 11, 12], 3, ([7, 2], [5, 0]), num_sampled=0)
    decode = share("b", [20], 9, ([1, 3, 4], [-1, 8, 9]), output_position=6, seed=-1, child_index=2)
    batch = build_step_batch([prompt, decode], KV, VOCAB)
    assert batch.token.tolist() == [10, 11, 12, 20]
    assert batch.position.tolist() == [3, 4, 5, 9]
    assert batch.request.tolist() == [0, 0, 0, 1]
    assert [slots.tolist() for slots in batch.slots] == [[7 * 4 + 3, 2 * 4, 2 * 4 + 1, 4 * 4 + 1], [23, 0, 1, 37]]
    assert [table.tolist() for table in batch.block_tables] == [[[7, 2, -1], [1, 3, 4]], [[5, 0, -1], [-1, 8, 9]]]
    assert batch.logit_rows.tolist() == [3]
    assert (batch.sample.output_position.tolist(), batch.sample.child.tolist()) == ([6], [2])
    assert batch.sample.seed.tolist() == [2**64 - 1]  # a negative seed keeps its 64 bits


def test_rows_below_write_start_are_computed_and_not_written() -> None:
    batch = build_step_batch([share("a", [5], 7, ([3, 1], [3, 1]), write_start=8)], KV, VOCAB)
    assert [slots.tolist() for slots in batch.slots] == [[-1], [-1]]


def test_hidden_rows_are_the_last_rows_of_those_who_want_them() -> None:
    scored = share("a", [5, 6], 0, ([0], [0]), scored_token_ids=[6, 7])
    batch = build_step_batch(
        [scored, share("b", [5], 0, ([0], [0]), wants_hidden=True), share("c", [5], 0, ([0], [0]))], KV, VOCAB
    )
    assert batch.logit_rows.tolist() == [0, 1, 1, 2, 3]
    assert batch.hidden_rows is not None
    assert batch.hidden_rows.tolist() == [3]
    assert build_step_batch([scored], KV, VOCAB).hidden_rows is None


def test_each_draft_is_sampled_for_its_own_output_position() -> None:
    request = share("a", [5, 6, 7], 4, ([0, 1], [0, 1]), num_sampled=3, output_position=2, draft_token_ids=[6, 7])
    batch = build_step_batch([request], KV, VOCAB)
    assert batch.logit_rows.tolist() == [0, 1, 2]
    assert batch.sample.output_position.tolist() == [2, 3, 4]


def test_no_allowed_top_p_is_rounded_to_none() -> None:
    """1e-320 is above 0 in float64 and 0 in float32; such a row would fail the step, and its neighbours with it."""
    requests = [share(str(p), [5], 0, ([0], [0]), sampling=SamplingParams(top_p=p)) for p in (5e-324, 0.25, 1.0)]
    top_p = build_step_batch(requests, KV, VOCAB).sample.top_p
    assert (top_p > 0).all()
    assert top_p[1:].tolist() == [0.25, 1.0]
