"""The KV cache and causal grouped-query attention over it."""

from __future__ import annotations

import numpy as np

from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.ops.protocol import I32Array, PlanLimits, StepBatch
from forebay.ops.tensor import F32Array

_DTYPES = {"f32": np.float32, "f16": np.float16, "int8": np.float32}


def stored(rows: F32Array, dtype: str) -> F32Array:
    """K or V rows (..., head_dim) as they come back from a cache of `dtype`.

    int8: codes of one scale per row, amax / 127, rounded to nearest even; what the cache keeps here is their values.
    """
    if dtype != "int8":
        return rows
    scale = np.abs(rows).max(axis=-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale >= np.finfo(np.float32).tiny)
    values: F32Array = np.rint(rows * inverse) * scale
    return values


class KVCache:
    """K and V of all groups: per group an array (layers, 2, num_blocks, block_size, kv_heads, head_dim), zeroed."""

    def __init__(self, kv: KVSpec, limits: PlanLimits) -> None:
        self._block_size = kv.block_size
        self._groups = kv.groups
        self._place = {layer: (g, i) for g, group in enumerate(kv.groups) for i, layer in enumerate(group.layers)}
        self._data = [self._allocate(group, limits.num_blocks) for group in kv.groups]

    def _allocate(self, group: KVGroup, num_blocks: int) -> np.ndarray:
        shape = (len(group.layers), 2, num_blocks, self._block_size, group.num_kv_heads, group.head_dim)
        return np.zeros(shape, _DTYPES[group.dtype])

    def write(self, layer: int, k: F32Array, v: F32Array, batch: StepBatch) -> None:
        """Store rows k, v (T, kv_heads * head_dim) at the step's slots; slot -1 is not written."""
        group, index = self._place[layer]
        slots = batch.slots[group]
        keep = slots >= 0
        block, offset = np.divmod(slots[keep], self._block_size)
        shape = (-1, self._groups[group].num_kv_heads, self._groups[group].head_dim)
        dtype = self._groups[group].dtype
        self._data[group][index, 0, block, offset] = stored(k[keep].reshape(shape), dtype)
        self._data[group][index, 1, block, offset] = stored(v[keep].reshape(shape), dtype)

    def read(self, layer: int, table: I32Array, start: int, stop: int) -> tuple[F32Array, F32Array]:
        """K and V of positions [start, stop) as float32 (stop - start, kv_heads, head_dim) each."""
        group, index = self._place[layer]
        position = np.arange(start, stop)
        block = table[position // self._block_size]
        k, v = self._data[group][index][:, block, position % self._block_size].astype(np.float32)
        return k, v

    def attention(self, layer: int, q: F32Array, scale: float, batch: StepBatch) -> F32Array:
        """Attention of q (T, heads * head_dim) over the cache -> same shape."""
        number, _ = self._place[layer]
        group = self._groups[number]
        out = np.empty_like(q)
        for request in np.unique(batch.request):
            rows = np.flatnonzero(batch.request == request)
            position = batch.position[rows]
            start = 0 if group.window is None else max(0, int(position[0]) - group.window + 1)
            k, v = self.read(layer, batch.block_tables[number][request], start, int(position[-1]) + 1)
            out[rows] = _attend(q[rows], k, v, position, start, group.window, scale)
        return out


def _attend(
    q: F32Array, k: F32Array, v: F32Array, position: I32Array, start: int, window: int | None, scale: float
) -> F32Array:
    """q (rows, heads * head_dim); k, v (keys, kv_heads, head_dim); key j stands at position start + j."""
    kv_heads, head_dim = k.shape[1:]
    heads = q.reshape(len(q), kv_heads, -1, head_dim)
    scores = np.einsum("rhgd,khd->hgrk", heads, k, dtype=np.float32) * np.float32(scale)
    key = start + np.arange(len(k))
    hidden = key[None, :] > position[:, None]
    if window is not None:
        hidden |= key[None, :] <= position[:, None] - window
    scores[..., hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out: F32Array = np.einsum("hgrk,khd->rhgd", weights, v, dtype=np.float32)
    return out.reshape(q.shape)
