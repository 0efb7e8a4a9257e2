"""Random weights, inputs and steps of any shape, for measuring and for the check that what is measured is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forebay.core.kv_spec import KVSpec
from forebay.ops.protocol import I32Array, RopeTable, SampleBatch, StepBatch
from forebay.ops.tensor import F32Array, Tensor
from forebay.weights.formats import FORMATS

# where a block keeps its f16 scales and minimums: random bits there could be an infinity
_HALVES = {"q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}


def random_floats(rng: np.random.Generator, rows: int, columns: int) -> F32Array:
    return rng.standard_normal((rows, columns), np.float32)


def f32_tensor(values: F32Array) -> Tensor:
    rows, columns = values.shape
    return Tensor("input", FORMATS["f32"], rows, columns, np.ascontiguousarray(values).view(np.uint8))


def random_weight(rng: np.random.Generator, format_name: str, rows: int, columns: int) -> Tensor:
    """Random codes with scales of a sane size; ValueError when `columns` does not fit the format."""
    fmt = FORMATS[format_name]
    row_bytes = fmt.row_bytes(columns)
    if not fmt.quantized:
        return Tensor("weight", fmt, rows, columns, _float_bytes(random_floats(rng, rows, columns), format_name))
    blocks = rng.integers(0, 256, (rows * columns // fmt.block_size, fmt.block_bytes), np.uint8)
    scales = (0.01 * rng.standard_normal((len(blocks), 1))).astype("<f2").view(np.uint8)
    for at in _HALVES.get(format_name, (0,)):
        blocks[:, at : at + 2] = scales
    return Tensor("weight", fmt, rows, columns, blocks.reshape(rows, row_bytes))


def _float_bytes(values: F32Array, format_name: str) -> np.ndarray:
    match format_name:
        case "bf16":
            stored: np.ndarray = (values.view(np.uint32) >> np.uint32(16)).astype("<u2")
        case "f16":
            stored = values.astype("<f2")
        case _:
            stored = values
    return np.ascontiguousarray(stored).view(np.uint8).reshape(len(values), -1)


def rope_table(rotary_dim: int, positions: int) -> RopeTable:
    angle = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    return RopeTable(np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32))


@dataclass(frozen=True, slots=True)
class StepShape:
    """`requests` requests of `rows_each` rows, the last of them at position `context` - 1.

    decode: one row of each request; prefill: one request, a chunk of its prompt that ends at `context`.
    """

    requests: int
    rows_each: int
    context: int

    @property
    def rows(self) -> int:
        return self.requests * self.rows_each

    @property
    def start(self) -> int:
        return self.context - self.rows_each

    @property
    def words(self) -> str:
        return f"decode {self.rows}" if self.rows_each == 1 else f"prefill {self.rows}"


def blocks_needed(shape: StepShape, kv: KVSpec) -> int:
    return shape.requests * -(-shape.context // kv.block_size)


def sampling(rows: int, *, temperature: float = 0.0, top_p: float = 1.0, num_logprobs: int = -1) -> SampleBatch:
    """The same sampling parameters for every row; greedy unless told otherwise."""
    return SampleBatch(
        temperature=np.full(rows, temperature, np.float32),
        top_p=np.full(rows, top_p, np.float32),
        min_p=np.zeros(rows, np.float32),
        top_k=np.zeros(rows, np.int32),
        seed=np.arange(rows, dtype=np.uint64),
        child=np.zeros(rows, np.int32),
        output_position=np.zeros(rows, np.int32),
        num_logprobs=np.full(rows, num_logprobs, np.int32),
    )


def step_of(
    shape: StepShape, kv: KVSpec, *, logit_rows: int, write: bool, sample: SampleBatch | None = None
) -> StepBatch:
    """Row i has token i. Each request owns consecutive blocks; with `write` its rows write their slots."""
    row = np.arange(shape.rows, dtype=np.int32)
    request, position = row // shape.rows_each, shape.start + row % shape.rows_each
    per_request = -(-shape.context // kv.block_size)
    table = np.arange(shape.requests * per_request, dtype=np.int32).reshape(shape.requests, per_request)
    slot = table[request, position // kv.block_size] * kv.block_size + position % kv.block_size
    slots = slot.astype(np.int32) if write else np.full(shape.rows, -1, np.int32)
    return StepBatch(
        token=row,
        position=position.astype(np.int32),
        request=request.astype(np.int32),
        slots=tuple(slots for _ in kv.groups),
        block_tables=tuple(table for _ in kv.groups),
        logit_rows=np.arange(logit_rows, dtype=np.int32),
        sample=sample or sampling(logit_rows),
    )


def fill_steps(shape: StepShape, kv: KVSpec) -> list[StepBatch]:
    """Steps that write something into every slot that `shape` reads, and see one key a row while they do: every row is
    a request of its own at position 0, whatever slot it writes."""
    slots = np.arange(blocks_needed(shape, kv) * kv.block_size, dtype=np.int32)
    return [_fill_step(slots[at : at + shape.rows], kv) for at in range(0, len(slots), shape.rows)]


def _fill_step(slots: I32Array, kv: KVSpec) -> StepBatch:
    count = len(slots)
    return StepBatch(
        token=np.arange(count, dtype=np.int32),
        position=np.zeros(count, np.int32),
        request=np.arange(count, dtype=np.int32),
        slots=tuple(slots for _ in kv.groups),
        block_tables=tuple(np.zeros((count, 1), np.int32) for _ in kv.groups),
        logit_rows=np.zeros(0, np.int32),
        sample=sampling(0),
    )
