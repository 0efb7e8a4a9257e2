"""Drives one op, or a few, through a backend: record, run, return the rows. Every backend is driven alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.ops.native import NativeBackend, supported_isas
from forebay.ops.protocol import Backend, LogitEdits, PlanLimits, SampleBatch, StepBatch
from forebay.ops.reference import ReferenceBackend
from forebay.ops.tensor import F32Array, Tensor
from forebay.weights.formats import FORMATS

ISAS = supported_isas()
NO_KV = KVSpec(groups=(), block_size=16)
REFERENCE = ReferenceBackend()
GENERIC = NativeBackend(isa="generic", threads=1)


def variants() -> list[NativeBackend]:
    """Every instruction set here, with one thread and with more than some ops have work for."""
    return [NativeBackend(isa=isa, threads=threads) for isa in ISAS for threads in (1, 2, 5)]


def f32_tensor(values: F32Array, name: str = "x") -> Tensor:
    rows, columns = values.shape
    data = np.ascontiguousarray(values, np.float32).view(np.uint8)
    return Tensor(name, FORMATS["f32"], rows, columns, data)


def random_tensor(rng: np.random.Generator, format_name: str, rows: int, columns: int) -> Tensor:
    """A weight with every code and sign occurring and scales of a sane size."""
    fmt = FORMATS[format_name]
    if not fmt.quantized:
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        if format_name == "bf16":
            data = (values.view(np.uint32) >> 16).astype(np.uint16)
        else:
            data = values.astype({"f32": np.float32, "f16": np.float16}[format_name])
        return Tensor("w", fmt, rows, columns, np.ascontiguousarray(data).view(np.uint8).reshape(rows, -1))
    blocks = rows * columns // fmt.block_size
    data = rng.integers(0, 256, (blocks, fmt.block_bytes), dtype=np.uint8)
    halves = {"q4_1": [0, 2], "q5_1": [0, 2], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208]}.get(format_name, [0])
    for at in halves:
        data[:, at : at + 2] = (0.01 * rng.standard_normal((blocks, 1))).astype(np.float16).view(np.uint8)
    return Tensor("w", fmt, rows, columns, data.reshape(rows, -1))


def sample_batch(rows: int, *, edits: LogitEdits | None = None, **columns: Any) -> SampleBatch:
    """Greedy without log-probabilities unless told otherwise; scalars are repeated."""
    defaults = {
        "temperature": (0.0, np.float32),
        "top_p": (1.0, np.float32),
        "min_p": (0.0, np.float32),
        "top_k": (0, np.int32),
        "seed": (0, np.uint64),
        "child": (0, np.int32),
        "output_position": (0, np.int32),
        "num_logprobs": (-1, np.int32),
        "typical_p": (1.0, np.float32),
    }
    assert columns.keys() <= defaults.keys()
    made = {
        name: np.ascontiguousarray(np.broadcast_to(np.asarray(columns.get(name, value), dtype), rows))
        for name, (value, dtype) in defaults.items()
    }
    return SampleBatch(**made, edits=edits)


def logit_edits(
    rows: Sequence[Sequence[tuple[int, int, float]]],
    *,
    vocab: int,
    allowed: Sequence[Sequence[int] | None] | None = None,
    **penalties: Any,
) -> LogitEdits:
    """rows: (token, count, bias) of each row. allowed: token ids of each row's mask. penalties: scalars or columns."""
    entries = [entry for row in rows for entry in row]
    defaults = {"repetition": 1.0, "presence": 0.0, "frequency": 0.0}
    columns = {
        name: np.ascontiguousarray(np.broadcast_to(np.float32(penalties.get(name, value)), len(rows)))
        for name, value in defaults.items()
    }
    allowed = [None] * len(rows) if allowed is None else allowed
    masks = np.zeros((sum(ids is not None for ids in allowed), -(-vocab // 32)), np.uint32)
    mask = np.full(len(rows), -1, np.int32)
    for row, ids in enumerate(allowed):
        if ids is not None:
            mask[row] = mask.max() + 1
            for token in ids:
                masks[mask[row], token // 32] |= np.uint32(1 << token % 32)
    return LogitEdits(
        start=np.cumsum([0, *map(len, rows)], dtype=np.int32),
        token=np.array([token for token, _, _ in entries], np.int32),
        count=np.array([count for _, count, _ in entries], np.int32),
        bias=np.array([bias for _, _, bias in entries], np.float32),
        masks=masks,
        mask=mask,
        **columns,
    )


def step(
    token: Sequence[int],
    position: Sequence[int] | None = None,
    request: Sequence[int] | None = None,
    *,
    slots: Sequence[Sequence[int]] = (),
    tables: Sequence[Any] = (),
    logit_rows: Sequence[int] | None = None,
    sample: SampleBatch | None = None,
    hidden_rows: Sequence[int] | None = None,
) -> StepBatch:
    """A batch of plain lists; by default one request from position 0 with logits for every row."""
    rows = range(len(token)) if logit_rows is None else logit_rows
    return StepBatch(
        token=np.array(token, np.int32),
        position=np.array(range(len(token)) if position is None else position, np.int32),
        request=np.array([0] * len(token) if request is None else request, np.int32),
        slots=tuple(np.array(s, np.int32) for s in slots),
        block_tables=tuple(np.array(t, np.int32) for t in tables),
        logit_rows=np.array(rows, np.int32),
        sample=sample_batch(len(rows)) if sample is None else sample,
        hidden_rows=None if hidden_rows is None else np.array(hidden_rows, np.int32),
    )


def limits(tokens: int = 64, requests: int = 8, model_len: int = 512, num_blocks: int = 1) -> PlanLimits:
    return PlanLimits(
        max_tokens=max(tokens, 1),
        max_requests=requests,
        max_logit_rows=max(tokens, 1),
        max_model_len=model_len,
        num_blocks=num_blocks,
    )


def apply(
    backend: Backend, op: Callable[..., Any], *inputs: F32Array, positions: Sequence[int] | None = None
) -> F32Array:
    """Rows of op(ops, *inputs) with the inputs (T, width) fed through embed. `positions` ascend by 1 (one request)."""
    rows = len(inputs[0])

    def forward(ops: Any) -> None:
        ops.segment("test")
        fed = [
            ops.embed(f32_tensor(np.concatenate([x, x[:1]]) if rows else np.zeros((1, x.shape[1]), np.float32)))
            for x in inputs
        ]
        ops.logits(ops.rows(op(ops, *fed)))

    plan = backend.compile(forward, NO_KV, limits(rows))
    out = plan.run_logits(step(list(range(rows)), positions))
    plan.close()
    return out


def bits(x: F32Array) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


def kv_spec(
    *,
    kv_heads: int = 1,
    head_dim: int = 16,
    dtype: str = "f32",
    window: int | None = None,
    block_size: int = 16,
    layers: tuple[int, ...] = (0,),
) -> KVSpec:
    return KVSpec(groups=(KVGroup(layers, kv_heads, head_dim, dtype, window),), block_size=block_size)
