"""What an op must at least do, as bytes and operations. The least time it can take is the larger of bytes over
bandwidth and operations over peak.

Bytes: every input and output once, however often a kernel really touches it. Weights count as stored in the model file,
once per call (a backend may keep them in a larger form; that is its own cost). Activations are float32 (4 bytes). K and
V count once per request, in the cache's format: rows of one request share them.

Operations: a multiplication, an addition, a comparison, a division, a square root and a call of exp or tanh are one
each. Not counted: conversions between formats, quantizing the activations, the draw of random numbers, the softmax of
attention.

`arithmetic` names the peak that the operations are set against: "dot_u4" and "dot_u8" (exact int8 dot products with
codes of 4 or 8 bits), "fma_f32", or None where there is none to speak of.

Names: T rows of the step, S of them with logits, W width, N x K a weight (out x in features).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.weights.formats import FORMATS

F32 = 4
FMA = "fma_f32"
_FOUR_BITS = ("q4_0", "q4_1", "q4_k")
_ACTIVATION_OPERATIONS = {
    "silu": 4,  # exp, +, /, times up
    "gelu_tanh": 10,  # x^2, x^3, * 0.044715, + x, * sqrt(2 / pi), tanh, + 1, * x, / 2, times up
}


@dataclass(frozen=True, slots=True)
class Cost:
    """`reused`: bytes of weight or cache that only this op reads and the next layer's has another copy of; what is left
    of `bytes` are activations, which a step finds in the nearest cache."""

    bytes: int
    operations: int
    arithmetic: str | None
    reused: int = 0


def arithmetic_of(format_name: str) -> str:
    if not FORMATS[format_name].quantized:
        return FMA
    return "dot_u4" if format_name in _FOUR_BITS else "dot_u8"


def linear(rows: int, outputs: int, columns: int, format_name: str) -> Cost:
    """bytes = N * row bytes + 4 T (K + N); operations = 2 T N K."""
    weight = outputs * FORMATS[format_name].row_bytes(columns)
    moved = weight + F32 * rows * (columns + outputs)
    return Cost(moved, 2 * rows * outputs * columns, arithmetic_of(format_name), weight)


def embed(rows: int, width: int, format_name: str) -> Cost:
    """bytes = T * row bytes + 4 T W; operations = 2 T W for quantized formats (scale, offset), else 0."""
    read, quantized = rows * FORMATS[format_name].row_bytes(width), FORMATS[format_name].quantized
    return Cost(read + F32 * rows * width, 2 * rows * width if quantized else 0, FMA if quantized else None, read)


def rms_norm(rows: int, width: int) -> Cost:
    """bytes = 8 T W + 4 W; operations = 4 T W (square, sum, times root, times weight)."""
    return Cost(2 * F32 * rows * width + F32 * width, 4 * rows * width, FMA)


def rope(rows: int, heads: int, head_dim: int, rotary_dim: int) -> Cost:
    """bytes = 8 T W + 4 T rotary_dim (cos, sin); operations = 3 T heads rotary_dim (4 multiplications, 2 additions a
    pair)."""
    return Cost(2 * F32 * rows * heads * head_dim + F32 * rows * rotary_dim, 3 * rows * heads * rotary_dim, FMA)


def kv_write(rows: int, kv_width: int, token_bytes: int) -> Cost:
    """bytes = 8 T W + T token_bytes: K and V read as float32, written in the cache's format."""
    return Cost(rows * (2 * kv_width * F32 + token_bytes), 0, None, rows * token_bytes)


def attention(starts: Sequence[int], rows_each: int, width: int, token_bytes: int) -> Cost:
    """Each request has `rows_each` rows from position `start`; a row at p sees p + 1 keys.

    bytes = sum over requests of keys * token_bytes + 8 T W; operations = 4 W * keys seen, summed over rows (one
    multiplication and addition for the score, one for the weighted sum), W = heads * head_dim. token_bytes: K and V of
    one token and layer in the cache.
    """
    rows = rows_each * len(starts)
    cache = sum((start + rows_each) * token_bytes for start in starts)
    seen = sum(rows_each * start + rows_each * (rows_each + 1) // 2 for start in starts)
    return Cost(cache + 2 * F32 * rows * width, 4 * width * seen, FMA, cache)


def elementwise(rows: int, width: int, inputs: int, operations_each: int) -> Cost:
    """bytes = 4 T W (inputs + 1); operations = T W * operations_each. add 1, scale 1, softcap 3 (/, tanh, *)."""
    return Cost(F32 * rows * width * (inputs + 1), operations_each * rows * width, FMA)


def act_mul(rows: int, width: int, activation: str) -> Cost:
    """As elementwise with two inputs; silu is 4 operations a value, gelu_tanh 10."""
    return elementwise(rows, width, 2, _ACTIVATION_OPERATIONS[activation])


def rows(count: int, width: int) -> Cost:
    """bytes = 8 S W; no operations."""
    return Cost(2 * F32 * count * width, 0, None)


def logits(count: int, vocab: int, *, random: bool) -> Cost:
    """Sampling of S rows: bytes = 4 S V (read once), operations = S V greedy (a comparison), 5 S V drawn (scale,
    subtract, exp, division of the race, comparison)."""
    return Cost(F32 * count * vocab, (5 if random else 1) * count * vocab, FMA)
