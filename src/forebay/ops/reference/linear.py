"""Matrix product with a stored weight."""

from __future__ import annotations

import numpy as np

from forebay.ops.protocol import QUANT_GROUP
from forebay.ops.tensor import F32Array, Tensor


def quantize_rows(x: F32Array) -> F32Array:
    """Round activations to int8 per row and per 32 along K, and back: (T, K) -> (T, K) float32.

    Scale is amax / 127; values are rounded to nearest even. This is what every integer kernel multiplies with.
    """
    groups = x.reshape(len(x), x.shape[1] // QUANT_GROUP, QUANT_GROUP)
    scale = np.abs(groups).max(axis=-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    rounded: F32Array = np.rint(groups * inverse) * scale
    return rounded.reshape(x.shape)


def linear(x: F32Array, weight: Tensor, bias: F32Array | None = None) -> F32Array:
    """x (T, columns) @ weight.T (+ bias) -> (T, rows)."""
    if weight.format.quantized:
        x = quantize_rows(x)
    y = x @ weight.dequantize().T
    return y if bias is None else y + bias


def embed(token: np.ndarray, weight: Tensor) -> F32Array:
    """Rows of `weight` for token ids (T,) -> (T, columns)."""
    return weight.select_rows(token.astype(np.intp)).dequantize()
