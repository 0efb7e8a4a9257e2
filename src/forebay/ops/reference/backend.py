"""The reference Plan: the forward pass is simply called again for every step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from forebay.core.kv_spec import KVSpec
from forebay.ops.protocol import Ops, PlanLimits, RopeTable, StepBatch, StepOutputs
from forebay.ops.reference.activation import act_mul, softcap
from forebay.ops.reference.attention import KVCache
from forebay.ops.reference.checksum import row_checksums
from forebay.ops.reference.linear import embed, linear
from forebay.ops.reference.norm import rms_norm
from forebay.ops.reference.rope import rope
from forebay.ops.reference.sample import sample
from forebay.ops.tensor import F32Array, Tensor

Checksums = list[tuple[str, npt.NDArray[np.uint64]]]
Forward = Callable[[Ops[F32Array]], None]


class ReferenceBackend:
    """numpy on one thread; no settings."""

    name = "reference"

    def compile(self, forward: Forward, kv: KVSpec, limits: PlanLimits) -> ReferencePlan:
        return ReferencePlan(forward, kv, limits)

    def choices(self) -> dict[str, tuple[str | int, str]]:
        return {"threads": (1, "the reference backend runs on one thread")}


class ReferencePlan:
    """A forward pass and the cache it reads and writes."""

    def __init__(self, forward: Forward, kv: KVSpec, limits: PlanLimits) -> None:
        self._forward = forward
        self._cache = KVCache(kv, limits)

    def run(self, batch: StepBatch) -> StepOutputs:
        logits, hidden, _ = self._run(batch)
        outputs = sample(logits, batch.sample)
        if batch.hidden_rows is not None:
            if hidden is None:
                raise ValueError("hidden_rows: the forward pass marked no hidden state")
            outputs.hidden = hidden[batch.hidden_rows]
        return outputs

    def run_logits(self, batch: StepBatch) -> F32Array:
        return self._run(batch)[0]

    def trace(self, batch: StepBatch) -> Checksums:
        return self._run(batch)[2]

    def close(self) -> None:
        """Nothing to give back."""

    def _run(self, batch: StepBatch) -> tuple[F32Array, F32Array | None, Checksums]:
        """Logits, hidden state, and a checksum of each op's rows."""
        ops = ReferenceOps(batch, self._cache)
        self._forward(ops)
        if ops.output is None:
            raise ValueError("the forward pass marked no logits")
        return ops.output, ops.marked, ops.checksums


class ReferenceOps:
    """The op set over numpy arrays, for one step."""

    def __init__(self, batch: StepBatch, cache: KVCache) -> None:
        self._batch = batch
        self._cache = cache
        self._segment = ""
        self.output: F32Array | None = None
        self.marked: F32Array | None = None  # the hidden state
        self.checksums: Checksums = []

    def _traced(self, op: str, value: F32Array) -> F32Array:
        self.checksums.append((f"{self._segment}/{op}", row_checksums(value)))
        return value

    def segment(self, name: str) -> None:
        self._segment = name

    def embed(self, weight: Tensor) -> F32Array:
        return self._traced("embed", embed(self._batch.token, weight))

    def linear(self, x: F32Array, weight: Tensor, bias: F32Array | None = None) -> F32Array:
        return self._traced("linear", linear(x, weight, bias))

    def rms_norm(self, x: F32Array, weight: F32Array, eps: float) -> F32Array:
        return self._traced("rms_norm", rms_norm(x, weight, eps))

    def rope(self, x: F32Array, head_dim: int, table: RopeTable) -> F32Array:
        return self._traced("rope", rope(x, self._batch.position, head_dim, table))

    def kv_write(self, layer: int, k: F32Array, v: F32Array) -> None:
        self._cache.write(layer, k, v, self._batch)

    def attention(self, q: F32Array, layer: int, scale: float) -> F32Array:
        return self._traced("attention", self._cache.attention(layer, q, scale, self._batch))

    def act_mul(self, gate: F32Array, up: F32Array, activation: str) -> F32Array:
        return self._traced("act_mul", act_mul(gate, up, activation))

    def add(self, x: F32Array, y: F32Array) -> F32Array:
        return self._traced("add", x + y)

    def scale(self, x: F32Array, factor: float) -> F32Array:
        return self._traced("scale", x * np.float32(factor))

    def softcap(self, x: F32Array, cap: float) -> F32Array:
        return self._traced("softcap", softcap(x, cap))

    def rows(self, x: F32Array) -> F32Array:
        return self._traced("rows", x[self._batch.logit_rows])

    def hidden(self, x: F32Array) -> None:
        self.marked = x

    def logits(self, x: F32Array) -> None:
        self.output = self._traced("logits", x)
