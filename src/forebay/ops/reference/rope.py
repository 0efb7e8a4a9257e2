"""Rotary position embedding (Su et al., arXiv:2104.09864), half-split pairing."""

from __future__ import annotations

import numpy as np

from forebay.ops.protocol import I32Array, RopeTable
from forebay.ops.tensor import F32Array


def rope(x: F32Array, position: I32Array, head_dim: int, table: RopeTable) -> F32Array:
    """Rotate every head of x (T, heads * head_dim) by its row's position."""
    heads = x.reshape(len(x), x.shape[1] // head_dim, head_dim)
    half = table.cos.shape[1]
    cos, sin = table.cos[position][:, None, :], table.sin[position][:, None, :]
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    turned = np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)
    return turned.reshape(x.shape)
