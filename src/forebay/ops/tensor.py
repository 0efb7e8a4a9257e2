"""A weight as it is stored: a format and its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

F32Array = npt.NDArray[np.float32]
BytesArray = npt.NDArray[np.uint8]


class Format(Protocol):
    """How a matrix is stored. Implementations live in weights/formats.

    name: "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k".
    block_size: values per block along a row (1 for float formats); block_bytes: bytes of one block.
    quantized: activations are quantized to int8 (per 32 along K) before a product with it.
    """

    @property
    def name(self) -> str: ...
    @property
    def block_size(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def quantized(self) -> bool: ...

    def dequantize(self, data: BytesArray, columns: int) -> F32Array:
        """(rows, bytes per row) uint8 -> (rows, columns) float32, equal bit for bit to the format's specification."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A stored weight of shape (rows, columns); vectors have rows == 1.

    data: uint8, (rows, columns // block_size * block_bytes), C-contiguous, often a view of a memory-mapped file.
    """

    name: str
    format: Format
    rows: int
    columns: int
    data: BytesArray

    def dequantize(self) -> F32Array:
        """(rows, columns) float32."""
        return self.format.dequantize(self.data, self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of `data`, known without it."""
        return self.rows * (self.columns // self.format.block_size) * self.format.block_bytes

    def release(self) -> None:
        """Said by who has a copy of its own: what can be made again may go. Bytes as stored stay."""

    def vector(self) -> F32Array:
        """(columns,) float32; for norms and biases."""
        return self.dequantize().reshape(-1)

    def select_rows(self, index: npt.NDArray[np.intp] | slice) -> Tensor:
        """The tensor with only these rows, in this order (a slice stays a view)."""
        data = np.ascontiguousarray(self.data[index])
        return Tensor(self.name, self.format, data.shape[0], self.columns, data)
