"""Root-mean-square normalization (Zhang and Sennrich, arXiv:1910.07467)."""

from __future__ import annotations

import numpy as np

from forebay.ops.tensor import F32Array


def rms_norm(x: F32Array, weight: F32Array, eps: float) -> F32Array:
    """x / sqrt(mean(x^2) + eps) * weight, over groups of len(weight) along the row."""
    groups = x.reshape(len(x), x.shape[1] // len(weight), len(weight))
    mean_square = np.mean(groups * groups, axis=-1, keepdims=True, dtype=np.float32)
    y = groups / np.sqrt(mean_square + np.float32(eps)) * weight
    return y.astype(np.float32).reshape(x.shape)
