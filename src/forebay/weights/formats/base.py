"""What every format shares: block geometry, shape check, and dequantizing in cache-sized chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from forebay.ops.tensor import BytesArray, F32Array

_CHUNK_BLOCKS = 8192  # bounds the temporaries of one decode call to a few MB


def half(data: BytesArray) -> F32Array:
    """(n, 2) bytes of an f16 -> (n, 1) float32."""
    return data.view("<f2").astype(np.float32)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A Format whose values come in blocks along a row (see ops.tensor.Format).

    decode: (blocks, block_bytes) uint8 -> (blocks, block_size) float32; for block_size 1 any (n, block_bytes) works.
    ggml_type: the type id of this format in a GGUF file.
    """

    name: str
    ggml_type: int
    block_size: int
    block_bytes: int
    decode: Callable[[BytesArray], F32Array] = field(repr=False)

    @property
    def quantized(self) -> bool:
        return self.block_size > 1

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row. ValueError when `columns` is not a multiple of the block size."""
        if columns % self.block_size:
            raise ValueError(f"{columns} columns are not a multiple of {self.name}'s block size {self.block_size}")
        return columns // self.block_size * self.block_bytes

    def dequantize(self, data: BytesArray, columns: int) -> F32Array:
        """(rows, bytes per row) uint8 -> (rows, columns) float32; for f32 a view where alignment allows it."""
        if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != self.row_bytes(columns):
            wanted = f"uint8 (rows, {self.row_bytes(columns)})"
            raise ValueError(f"{self.name} data of {columns} columns must be {wanted}, not {data.dtype} {data.shape}")
        blocks = np.ascontiguousarray(data).reshape(-1, self.block_bytes)
        if self.block_size == 1:
            return self.decode(blocks).reshape(-1, columns)
        out = np.empty((blocks.shape[0], self.block_size), dtype=np.float32)
        with np.errstate(invalid="ignore", over="ignore"):  # a hostile scale may be inf or NaN; the result shows it
            for start in range(0, blocks.shape[0], _CHUNK_BLOCKS):
                part = slice(start, start + _CHUNK_BLOCKS)
                out[part] = self.decode(blocks[part])
        return out.reshape(-1, columns)
