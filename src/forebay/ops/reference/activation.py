"""Gated activations and element-wise ops."""

from __future__ import annotations

import numpy as np

from forebay.ops.tensor import F32Array


def act_mul(gate: F32Array, up: F32Array, activation: str) -> F32Array:
    """activation(gate) * up. "silu" (arXiv:1702.03118), "gelu_tanh" (arXiv:1606.08415, tanh form)."""
    if activation == "silu":
        with np.errstate(over="ignore"):
            gated = gate / (np.float32(1) + np.exp(-gate))
    elif activation == "gelu_tanh":
        inner = np.float32(0.7978845608) * (gate + np.float32(0.044715) * gate * gate * gate)
        gated = np.float32(0.5) * gate * (np.float32(1) + np.tanh(inner))
    else:
        raise ValueError(f'activation must be "silu" or "gelu_tanh", got {activation!r}')
    return gated.astype(np.float32) * up


def softcap(x: F32Array, cap: float) -> F32Array:
    """cap * tanh(x / cap)."""
    capped: F32Array = np.float32(cap) * np.tanh(x / np.float32(cap))
    return capped
