"""From a step as the scheduler sees it (requests) to a step as the kernels see it (columns)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from forebay.core.kv_spec import KVSpec
from forebay.core.sampling_params import SamplingParams
from forebay.core.step import ScheduledRequest
from forebay.ops.protocol import I32Array, SampleBatch, StepBatch
from forebay.sampling.logit_edits import SCORED, logit_edits

# a mass that float32 rounds to 0 would keep nothing
_LEAST_MASS = np.finfo(np.float32).tiny


def build_step_batch(requests: Sequence[ScheduledRequest], kv: KVSpec, vocab_size: int) -> StepBatch:
    """Columns of a step; rows in the order of `requests`. vocab_size: of the model's logits."""
    count = np.array([len(r.token_ids) for r in requests], np.int32)
    end = count.cumsum(dtype=np.int32)
    request = np.arange(len(requests), dtype=np.int32).repeat(count)
    before = np.array([r.start for r in requests], np.int32) + count - end  # of a request's positions and rows
    position = before[request] + np.arange(len(request), dtype=np.int32)
    written = position >= np.array([r.write_start for r in requests], np.int32)[request]
    block, offset = np.divmod(position, kv.block_size)
    tables = tuple([_block_table([r.block_tables[g] for r in requests]) for g in range(len(kv.groups))])
    return StepBatch(
        token=np.array([token for r in requests for token in r.token_ids], np.int32),
        position=position,
        request=request,
        slots=tuple([_slots(table[request, block], offset, written, kv.block_size) for table in tables]),
        block_tables=tables,
        logit_rows=_logit_rows(requests, end.tolist()),
        sample=_sample_batch(requests, vocab_size),
        hidden_rows=_hidden_rows(requests),
    )


def _block_table(tables: list[list[int]]) -> I32Array:
    out = np.full((len(tables), max(map(len, tables), default=0)), -1, np.int32)
    for row, table in zip(out, tables, strict=True):
        row[: len(table)] = table
    return out


def _slots(block: I32Array, offset: I32Array, written: npt.NDArray[np.bool_], block_size: int) -> I32Array:
    slot = block * np.int32(block_size) + offset
    slot[~written | (block < 0)] = -1
    return slot


def _logit_rows(requests: Sequence[ScheduledRequest], ends: list[int]) -> I32Array:
    """Of each request the scored rows, then the sampled ones."""
    rows: list[int] = []
    for r, end in zip(requests, ends, strict=True):
        first = end - len(r.token_ids) + r.scored_row
        rows += range(first, first + len(r.scored_token_ids))
        rows += range(end - r.num_sampled, end)
    return np.array(rows, np.int32)


def _hidden_rows(requests: Sequence[ScheduledRequest]) -> I32Array | None:
    """Which of the logit rows give their hidden state: the last one of each request that wants it."""
    if not any(r.wants_hidden for r in requests):
        return None
    ends = np.cumsum([len(r.scored_token_ids) + r.num_sampled for r in requests], dtype=np.int32)
    return ends[[r.wants_hidden for r in requests]] - np.int32(1)


def _sample_batch(requests: Sequence[ScheduledRequest], vocab_size: int) -> SampleBatch:
    """One entry per logit row; sampled row i of a request draws for output position `output_position + i`."""
    rows = [(r, i) for r in requests for i in chain(repeat(SCORED, len(r.scored_token_ids)), range(r.num_sampled))]
    sampling = [r.sampling for r, _ in rows]
    return SampleBatch(
        temperature=np.array([s.temperature for s in sampling], np.float32),
        top_p=np.maximum(np.array([s.top_p for s in sampling], np.float32), _LEAST_MASS),
        min_p=np.array([s.min_p for s in sampling], np.float32),
        top_k=np.array([s.top_k for s in sampling], np.int32),
        seed=np.array([r.seed & 0xFFFFFFFFFFFFFFFF for r, _ in rows], np.uint64),
        child=np.array([r.child_index for r, _ in rows], np.int32),
        output_position=np.array([r.output_position + max(i, 0) for r, i in rows], np.int32),
        num_logprobs=np.array([_num_logprobs(r.sampling, i) for r, i in rows], np.int32),
        typical_p=_typical_p(sampling),
        edits=logit_edits(rows, vocab_size),
        target=_targets(requests),
    )


def _num_logprobs(sampling: SamplingParams, index: int) -> int:
    count = sampling.prompt_logprobs if index == SCORED else sampling.logprobs
    return -1 if count is None else count


def _targets(requests: Sequence[ScheduledRequest]) -> I32Array | None:
    if not any(r.scored_token_ids for r in requests):
        return None
    return np.array([token for r in requests for token in [*r.scored_token_ids, *[-1] * r.num_sampled]], np.int32)


def _typical_p(sampling: Sequence[SamplingParams]) -> npt.NDArray[np.float32] | None:
    if all(s.typical_p == 1.0 for s in sampling):
        return None
    return np.maximum(np.array([s.typical_p for s in sampling], np.float32), _LEAST_MASS)
