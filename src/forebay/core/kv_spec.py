"""What the KV cache holds: groups of layers that share one block table."""

from __future__ import annotations

from dataclasses import dataclass

KV_ITEMSIZE = {"f32": 4, "f16": 2, "int8": 1}
KV_SCALE_BYTES = {"int8": 4}  # one float per token, head, and K or V


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers with the same shape, format and window.

    window: keys a query at position p may see are (p - window, p]; None is full attention.
    """

    layers: tuple[int, ...]
    num_kv_heads: int
    head_dim: int
    dtype: str  # a key of KV_ITEMSIZE
    window: int | None = None

    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token over all layers of the group."""
        row = self.head_dim * KV_ITEMSIZE[self.dtype] + KV_SCALE_BYTES.get(self.dtype, 0)
        return 2 * len(self.layers) * self.num_kv_heads * row


@dataclass(frozen=True, slots=True)
class KVSpec:
    """All groups of a model. Every group has its own block table and, on the device, its own `num_blocks` blocks."""

    groups: tuple[KVGroup, ...]
    block_size: int

    def bytes_per_block(self) -> int:
        """Bytes of one block index over all groups."""
        return self.block_size * sum(group.bytes_per_token() for group in self.groups)
