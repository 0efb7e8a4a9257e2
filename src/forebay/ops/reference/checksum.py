"""A checksum per row, to find the first op where two runs part."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forebay.ops.tensor import F32Array

_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


def row_checksums(x: F32Array) -> npt.NDArray[np.uint64]:
    """FNV-1a over the 32-bit words of each row: (T, width) float32 -> (T,) uint64."""
    words = np.ascontiguousarray(x, np.float32).view(np.uint32)
    digest = np.full(len(words), _FNV_OFFSET, np.uint64)
    for column in words.T:
        digest = (digest ^ column) * _FNV_PRIME
    return digest
