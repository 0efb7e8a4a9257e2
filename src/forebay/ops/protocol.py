"""The op set: what a forward pass is made of, and what a backend must implement.

`models/decoder.py` calls these ops once per layer. On `reference` every call computes (numpy, float32, eager);
on `native` every call records into a Plan that later runs a whole step in one C++ call. `V` is the backend's value:
an array of shape (step tokens, width) or a handle that stands for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from forebay.core.kv_spec import KVSpec
from forebay.ops.tensor import F32Array, Tensor

V = TypeVar("V")
I32Array = npt.NDArray[np.int32]

QUANT_GROUP = 32  # activations are quantized per this many values along K
KERNEL_CONTRACT_VERSION = 2  # bump whenever any op's bits may change


@dataclass(frozen=True, slots=True, eq=False)
class RopeTable:
    """cos, sin: float32 (positions, rotary_dim / 2), computed in float64. Half-split pairing: element i of a head is
    rotated with element i + rotary_dim / 2; elements from rotary_dim up pass through."""

    cos: F32Array
    sin: F32Array


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The largest step a Plan must run."""

    max_tokens: int
    max_requests: int
    max_logit_rows: int
    max_model_len: int
    num_blocks: int


@dataclass(slots=True, eq=False)
class StepBatch:
    """One step in columns. T tokens, R requests, S rows that need logits, G KV groups.

    token (T,), position (T,), request (T,) int32: rows of a request are adjacent, positions ascending by 1.
    slots: per group (T,) int32, the cache slot (block id * block_size + offset) of each token, -1 = do not write.
    block_tables: per group (R, max blocks) int32, block id per block_size positions, -1 = not there (never read).
    logit_rows (S,) int32: rows that go through the head, ascending.
    hidden_rows (H,) int32: of those, as indices from 0 to S - 1, which give back what `hidden` marked; None for none.
    """

    token: I32Array
    position: I32Array
    request: I32Array
    slots: tuple[I32Array, ...]
    block_tables: tuple[I32Array, ...]
    logit_rows: I32Array
    sample: SampleBatch
    hidden_rows: I32Array | None = None


@dataclass(slots=True, eq=False)
class SampleBatch:
    """Sampling columns, one entry per row of `logit_rows` (S,).

    temperature, top_p, min_p float32 (temperature 0 = greedy); top_k int32 (0 = all); seed uint64; child int32;
    output_position int32; num_logprobs int32 (-1 = no log-probabilities, 0 = sampled token only, k = and the k best).
    typical_p float32, or None: 1 in every row. edits: None if no row's logits are changed. Log-probabilities are those
    of the unchanged logits. target int32: the token that a row gives, and its log-probability, without a draw; -1 or
    None: a drawn one.
    """

    temperature: F32Array
    top_p: F32Array
    min_p: F32Array
    top_k: I32Array
    seed: npt.NDArray[np.uint64]
    child: I32Array
    output_position: I32Array
    num_logprobs: I32Array
    typical_p: F32Array | None = None
    edits: LogitEdits | None = None
    target: I32Array | None = None


@dataclass(slots=True, eq=False)
class LogitEdits:
    """What changes logits before temperature and filters. S logit rows, E entries, M masks.

    start (S + 1,) int32: row r has the entries [start[r], start[r + 1]), taken one after the other. Each changes x, the
    logit of its token, in float32:
      count >= 0  the token was seen: x = x / repetition[r] if x > 0 else x * repetition[r], unless that is 1
      count > 0   it is in the output so often: x = x - (frequency[r] * count + presence[r])
      then        x = x + bias; -inf bars the token
    token, count (E,) int32, bias (E,) float32; repetition, presence, frequency (S,) float32.
    masks (M, at least ceil(vocab / 32)) uint32: bit i % 32 of word i / 32 allows token i. mask (S,) int32: the row's
    mask, or -1 for none; it comes last.
    """

    start: I32Array
    token: I32Array
    count: I32Array
    bias: F32Array
    repetition: F32Array
    presence: F32Array
    frequency: F32Array
    masks: npt.NDArray[np.uint32]
    mask: I32Array


@dataclass(slots=True, eq=False)
class StepOutputs:
    """token (S,) int32: sampled ids; -1 where edits left nothing to choose from. logprob (S,) float32. top_ids,
    top_logprobs (S, max k): -1, nan beyond a row's k. ok (S,) bool: False where the row's logits held a NaN or +inf
    (its token is meaningless). hidden (H, width) float32: of the batch's hidden_rows; None if it has none."""

    token: I32Array
    logprob: F32Array
    top_ids: I32Array
    top_logprobs: F32Array
    ok: npt.NDArray[np.bool_]
    hidden: F32Array | None = None


class Ops(Protocol[V]):
    """Ops of a decoder-only forward pass. Rows are the tokens of the step; weights are (out features, in features)."""

    def segment(self, name: str) -> None:
        """Start a named part of the plan ("embed", "layers.0.attention", "layers.0.mlp", "head")."""

    def embed(self, weight: Tensor) -> V:
        """Rows of `weight` for the step's tokens -> (T, weight.columns)."""
        ...

    def linear(self, x: V, weight: Tensor, bias: F32Array | None = None) -> V:
        """x @ weight.T (+ bias) -> (T, weight.rows). Quantized formats quantize x per row and per 32 along K first."""
        ...

    def rms_norm(self, x: V, weight: F32Array, eps: float) -> V:
        """x / sqrt(mean(x^2) + eps) * weight over groups of len(weight): the whole row, or each head of it."""
        ...

    def rope(self, x: V, head_dim: int, table: RopeTable) -> V:
        """Rotary position embedding of every head of x by the step's positions (Su et al., arXiv:2104.09864)."""
        ...

    def kv_write(self, layer: int, k: V, v: V) -> None:
        """Store K and V rows (T, num_kv_heads * head_dim) of `layer` at the step's slots, in the group's format."""

    def attention(self, q: V, layer: int, scale: float) -> V:
        """Causal grouped-query attention (with the group's window) of q (T, heads * head_dim) over the cache only."""
        ...

    def act_mul(self, gate: V, up: V, activation: str) -> V:
        """activation(gate) * up; activation is "silu" or "gelu_tanh"."""
        ...

    def add(self, x: V, y: V) -> V: ...

    def scale(self, x: V, factor: float) -> V: ...

    def softcap(self, x: V, cap: float) -> V:
        """cap * tanh(x / cap)."""
        ...

    def rows(self, x: V) -> V:
        """The step's logit rows of x: (T, width) -> (S, width)."""
        ...

    def hidden(self, x: V) -> None:
        """Mark x (S, width) as the final hidden state of the step's logit rows; those that ask get it back
        (StepBatch.hidden_rows)."""

    def logits(self, x: V) -> None:
        """Mark x (S, vocab) as the plan's output; sampling and log-probabilities run on it."""


class Plan(Protocol):
    """A compiled forward pass with its KV cache."""

    def run(self, batch: StepBatch) -> StepOutputs:
        """One step: forward, sampling, log-probabilities. KV is written as `batch.slots` say."""
        ...

    def run_logits(self, batch: StepBatch) -> F32Array:
        """The same forward, returning logits (S, vocab) float32 instead of sampling; for evaluation and tests."""
        ...

    def trace(self, batch: StepBatch) -> list[tuple[str, npt.NDArray[np.uint64]]]:
        """Run and return, per op in order, ("segment/op", checksum of each row (64-bit)). Finds where two runs part."""
        ...

    def close(self) -> None:
        """Give back threads and memory. The plan cannot run afterwards."""


class Backend(Protocol):
    """A family of kernels. `name` is part of the answer class."""

    name: str

    def compile(self, forward: Callable[[Ops[Any]], None], kv: KVSpec, limits: PlanLimits) -> Plan:
        """Record or keep `forward`, pack its weights and allocate the KV cache (zeroed)."""
        ...

    def choices(self) -> dict[str, tuple[str | int, str]]:
        """What it decided itself: "isa", "threads" -> (value, reason)."""
        ...
