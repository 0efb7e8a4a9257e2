"""From a step as the scheduler sees it (requests) to a step as the kernels see it (columns)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay.core.kv_spec import KVSpec
from forebay.core.step import ScheduledRequest
from forebay.ops.protocol import I32Array, SampleBatch, StepBatch

# a top_p that float32 rounds to 0 would keep nothing
_LEAST_TOP_P = np.finfo(np.float32).tiny


def build_step_batch(requests: Sequence[ScheduledRequest], kv: KVSpec) -> StepBatch:
    """Columns of a step; rows in the order of `requests`."""
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
        sample=_sample_batch(requests),
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
    rows = [row for r, end in zip(requests, ends, strict=True) for row in range(end - r.num_sampled, end)]
    return np.array(rows, np.int32)


def _sample_batch(requests: Sequence[ScheduledRequest]) -> SampleBatch:
    """One entry per sampled row; row i of a request draws for output position `output_position + i`."""
    rows = [(r, r.output_position + i) for r in requests for i in range(r.num_sampled)]
    sampling = [r.sampling for r, _ in rows]
    return SampleBatch(
        temperature=np.array([s.temperature for s in sampling], np.float32),
        top_p=np.maximum(np.array([s.top_p for s in sampling], np.float32), _LEAST_TOP_P),
        min_p=np.array([s.min_p for s in sampling], np.float32),
        top_k=np.array([s.top_k for s in sampling], np.int32),
        seed=np.array([r.seed & 0xFFFFFFFFFFFFFFFF for r, _ in rows], np.uint64),
        child=np.array([r.child_index for r, _ in rows], np.int32),
        output_position=np.array([position for _, position in rows], np.int32),
        num_logprobs=np.array([-1 if s.logprobs is None else s.logprobs for s in sampling], np.int32),
    )
