"""From what a request asks to the columns that change its logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from forebay.core.sampling_params import SamplingParams
from forebay.core.step import ScheduledRequest
from forebay.core.token_history import TokenHistory
from forebay.ops.protocol import LogitEdits
from forebay.sampling.logit_edits import logit_edits

VOCAB = 70


def request(history: TokenHistory | None = None, **more: Any) -> ScheduledRequest:
    sampling = SamplingParams(**{name: more.pop(name) for name in [*more] if name in SamplingParams.__struct_fields__})
    values: dict[str, Any] = {
        "token_ids": [1], "start": 0, "write_start": 0, "block_tables": (), "num_sampled": 1, "output_position": 0,
        "seed": 1, "child_index": 0, "tenant": "", "namespace": "", **more,
    }  # fmt: skip
    return ScheduledRequest(request_id="r", sampling=sampling, history=history, **values)


def entries(edits: LogitEdits | None, row: int) -> list[tuple[int, int, float]]:
    assert edits is not None
    part = slice(edits.start[row], edits.start[row + 1])
    columns = edits.token[part].tolist(), edits.count[part].tolist(), edits.bias[part].tolist()
    return list(zip(*columns, strict=True))


def test_nothing_asked_costs_nothing() -> None:
    assert logit_edits([(request(temperature=0.5, top_p=0.9), 0)], VOCAB) is None
    assert logit_edits([], VOCAB) is None


def test_history_counts_each_token_once() -> None:
    history = TokenHistory([5, 6, 5])
    history.add([6, 9])
    history.add([9])
    edits = logit_edits([(request(history, repetition_penalty=1.2, presence_penalty=0.5), 0)], VOCAB)
    assert entries(edits, 0) == [(5, 0, 0.0), (6, 1, 0.0), (9, 2, 0.0)]
    assert edits is not None
    assert (edits.repetition.tolist(), edits.presence.tolist()) == ([np.float32(1.2)], [0.5])
    history.add([7])  # what a step has read can still grow
    assert len(entries(edits, 0)) == 3


def test_a_row_after_drafts_has_seen_them() -> None:
    history = TokenHistory([5])
    drafting = request(history, frequency_penalty=1.0, draft_token_ids=[5, 8], num_sampled=3)
    edits = logit_edits([(drafting, row) for row in range(3)], VOCAB)
    assert [entries(edits, row) for row in range(3)] == [
        [(5, 0, 0.0)],
        [(5, 1, 0.0)],
        [(5, 1, 0.0), (8, 1, 0.0)],
    ]


def test_biases_then_bars() -> None:
    asked = request(logit_bias={3: 1.5, 4: -100.0}, bad_token_ids=(4, 69))
    edits = logit_edits([(request(), 0), (asked, 0)], VOCAB)
    assert entries(edits, 0) == []
    assert entries(edits, 1) == [(3, -1, 1.5), (4, -1, -100.0), (4, -1, -np.inf), (69, -1, -np.inf)]


def test_ends_are_barred_up_to_min_tokens() -> None:
    for position, index, barred in [(0, 0, True), (2, 0, True), (3, 0, False), (1, 1, True), (1, 2, False)]:
        asked = request(min_tokens=3, end_token_ids=frozenset([2, 7]), output_position=position)
        found = logit_edits([(asked, index)], VOCAB)
        tokens = [] if found is None else [token for token, _, _ in entries(found, 0)]
        assert tokens == ([2, 7] if barred else [])


def test_a_list_is_a_mask() -> None:
    a, b = request(allowed_token_ids=(0, 31, 32, 69)), request(allowed_token_ids=(5,))
    edits = logit_edits([(a, 0), (b, 0), (request(), 0), (a, 1)], VOCAB)
    assert edits is not None
    assert edits.mask.tolist() == [0, 1, -1, 2]
    assert edits.masks.tolist() == [[1 | 1 << 31, 1, 1 << 5], [1 << 5, 0, 0], [1 | 1 << 31, 1, 1 << 5]]
