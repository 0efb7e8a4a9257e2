"""The native backend: ops record into a C++ Plan (csrc/) that runs a whole step in one call with the GIL released."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from forebay.core.kv_spec import KV_ITEMSIZE, KVGroup, KVSpec
from forebay.errors import ProfileError
from forebay.ops import _native
from forebay.ops.protocol import LogitEdits, Ops, PlanLimits, RopeTable, SampleBatch, StepBatch, StepOutputs
from forebay.ops.tensor import F32Array, Tensor


def supported_isas() -> list[str]:
    """Instruction sets this build and machine can run, "generic" first, best last."""
    return list(_native.supported_isas())


class NativeBackend:
    """C++ on the CPU.

    isa: "auto" (the best one here) or a name from supported_isas(); all of them give the same bits.
    threads: "auto" (one per usable core) or a number; results do not depend on it.
    ProfileError when isa is not supported here or threads is below 1.
    """

    name = "native"

    def __init__(self, isa: str = "auto", threads: int | Literal["auto"] = "auto") -> None:
        supported = supported_isas()
        if isa != "auto" and isa not in supported:
            raise ProfileError(
                f"backend.isa must be auto or one of {', '.join(supported)} here, got {isa!r}", param="isa"
            )
        if threads != "auto" and threads < 1:
            raise ProfileError(f"backend.threads must be auto or at least 1, got {threads}", param="threads")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.isa = supported[-1] if isa == "auto" else isa
        self.threads = cores if threads == "auto" else threads
        why_isa = "the best of " + ", ".join(supported) if isa == "auto" else "as set"
        why_threads = "one per usable core" if threads == "auto" else "as set"
        self._choices: dict[str, tuple[str | int, str]] = {
            "isa": (self.isa, why_isa), "threads": (self.threads, why_threads)
        }  # fmt: skip

    def compile(self, forward: Callable[[Ops[Any]], None], kv: KVSpec, limits: PlanLimits) -> NativePlan:
        """Record `forward` once: packs every weight, allocates the cache. ValueError on shapes that do not fit."""
        sizes = (limits.max_tokens, limits.max_requests, limits.max_logit_rows, limits.max_model_len, limits.num_blocks)
        groups = [_group(group) for group in kv.groups]
        plan = _native.Plan(self.isa, self.threads, sizes, kv.block_size, groups)
        forward(NativeOps(plan))
        plan.finish()
        return NativePlan(plan)

    def choices(self) -> dict[str, tuple[str | int, str]]:
        return dict(self._choices)


def _group(group: KVGroup) -> tuple[list[int], int, int, str, int]:
    if group.dtype not in KV_ITEMSIZE:
        raise ProfileError(
            f"kv.dtype must be one of {', '.join(KV_ITEMSIZE)} on the native backend, got {group.dtype!r}",
            param="dtype",
        )
    return list(group.layers), group.num_kv_heads, group.head_dim, group.dtype, group.window or 0


class NativeOps:
    """Records ops; a value is a handle (int) of the plan. Each method is one of `Plan`'s in csrc/plan.h."""

    def __init__(self, plan: _native.Plan) -> None:
        self._plan = plan

    def segment(self, name: str) -> None:
        self._plan.segment(name)

    def embed(self, weight: Tensor) -> int:
        return self._plan.embed(weight.format.name, weight.data, weight.columns)

    def linear(self, x: int, weight: Tensor, bias: F32Array | None = None) -> int:
        packed = self._plan.linear(
            x, weight.format.name, weight.data, weight.columns, None if bias is None else _f32(bias)
        )
        weight.release()  # the plan has its own copy, and keeps alive what `embed` was given
        return packed

    def rms_norm(self, x: int, weight: F32Array, eps: float) -> int:
        return self._plan.rms_norm(x, _f32(weight), eps)

    def rope(self, x: int, head_dim: int, table: RopeTable) -> int:
        return self._plan.rope(x, head_dim, _f32(table.cos), _f32(table.sin))

    def kv_write(self, layer: int, k: int, v: int) -> None:
        self._plan.kv_write(layer, k, v)

    def attention(self, q: int, layer: int, scale: float) -> int:
        return self._plan.attention(q, layer, scale)

    def act_mul(self, gate: int, up: int, activation: str) -> int:
        return self._plan.act_mul(gate, up, activation)

    def add(self, x: int, y: int) -> int:
        return self._plan.add(x, y)

    def scale(self, x: int, factor: float) -> int:
        return self._plan.scale(x, factor)

    def softcap(self, x: int, cap: float) -> int:
        return self._plan.softcap(x, cap)

    def rows(self, x: int) -> int:
        return self._plan.rows(x)

    def hidden(self, x: int) -> None:
        self._plan.hidden(x)

    def logits(self, x: int) -> None:
        self._plan.logits(x)


class NativePlan:
    """See ops.protocol.Plan. Every method checks the batch first and raises ValueError naming what is out of range."""

    def __init__(self, plan: _native.Plan) -> None:
        self._plan: _native.Plan | None = plan

    def run(self, batch: StepBatch) -> StepOutputs:
        plan, out = self._open(), _empty_outputs(len(batch.logit_rows), batch.sample)
        if batch.hidden_rows is not None:
            out.hidden = np.empty((len(batch.hidden_rows), plan.hidden_width), np.float32)
        plan.run(_step(batch), _sample(batch.sample), _outputs(out))
        return out

    def run_logits(self, batch: StepBatch) -> F32Array:
        plan = self._open()
        out = np.empty((len(batch.logit_rows), plan.vocab), np.float32)
        plan.run_logits(_step(batch), out)
        return out

    def trace(self, batch: StepBatch) -> list[tuple[str, npt.NDArray[np.uint64]]]:
        return [(name, np.array(sums, np.uint64)) for name, sums in self._open().trace(_step(batch))]

    def segments_done(self) -> list[tuple[str, int]]:
        """Name of each segment and how often it has completed; readable from another thread while a step runs."""
        return list(self._open().segments_done())

    def close(self) -> None:
        self._plan = None

    def _open(self) -> _native.Plan:
        if self._plan is None:
            raise ValueError("the plan is closed")
        return self._plan


def sample(logits: F32Array, batch: SampleBatch, isa: str = "auto") -> StepOutputs:
    """Sampling and log-probabilities of logits (S, vocab), exactly as a plan's run() does them after its forward."""
    out = _empty_outputs(len(logits), batch)
    _native.sample(supported_isas()[-1] if isa == "auto" else isa, _f32(logits), _sample(batch), _outputs(out))
    return out


def dequantize(weight: Tensor) -> F32Array:
    """(rows, columns) float32 by the code that `embed` and packing use; equal bit for bit to weight.dequantize()."""
    out = np.empty((weight.rows, weight.columns), np.float32)
    _native.dequantize(weight.format.name, weight.data, out)
    return out


def measuring_kernels(isa: str, threads: int) -> _native.Roofline:
    """What the machine can do at best with an instruction set of supported_isas(); for bench/ops.

    Its methods give one timing per repeat, each of at least `seconds`: read(bytes, seconds, repeats) in bytes a second,
    peak("dot_u8" | "dot_u4" | "fma_f32", seconds, repeats) in operations a second. The GIL is released meanwhile.
    """
    return _native.Roofline(isa, threads)


def read_all(isa: str, data: npt.NDArray[np.uint8]) -> int:
    """What the read kernel makes of `data`: the exclusive or of its little-endian 32-bit words, padded with zeros."""
    return _native.read_all(isa, data)


def _f32(array: npt.NDArray[Any]) -> F32Array:
    return np.ascontiguousarray(array, np.float32)


def _step(batch: StepBatch) -> _native.Step:
    return _native.Step(
        batch.token,
        batch.position,
        batch.request,
        batch.slots,
        batch.block_tables,
        batch.logit_rows,
        batch.hidden_rows,
    )


def _sample(batch: SampleBatch) -> _native.Sample:
    return _native.Sample(
        batch.temperature,
        batch.top_p,
        batch.min_p,
        batch.top_k,
        batch.seed,
        batch.child,
        batch.output_position,
        batch.num_logprobs,
        batch.typical_p,
        None if batch.edits is None else _edits(batch.edits),
        batch.target,
    )


def _edits(edits: LogitEdits) -> _native.Edits:
    return _native.Edits(
        edits.start,
        edits.token,
        edits.count,
        edits.bias,
        edits.repetition,
        edits.presence,
        edits.frequency,
        edits.masks,
        edits.mask,
    )


def _empty_outputs(rows: int, batch: SampleBatch) -> StepOutputs:
    widest = max(0, int(batch.num_logprobs.max(initial=-1)))
    return StepOutputs(
        token=np.empty(rows, np.int32),
        logprob=np.empty(rows, np.float32),
        top_ids=np.empty((rows, widest), np.int32),
        top_logprobs=np.empty((rows, widest), np.float32),
        ok=np.empty(rows, np.bool_),
    )


def _outputs(out: StepOutputs) -> _native.Outputs:
    return _native.Outputs(out.token, out.logprob, out.top_ids, out.top_logprobs, out.ok, out.hidden)
