"""GGUF's blocks of 32: an f16 scale d (and an f16 minimum m) per block, value = d * q (+ m).

Source: ggml-common.h and ggml-quants.c of ggml (MIT). In all four- and five-bit formats the low nibbles of the 16 quant
bytes are values 0-15 and the high nibbles values 16-31; the fifth bits are one little-endian u32, bit i for value i.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forebay.ops.tensor import BytesArray, F32Array
from forebay.weights.formats.base import BlockFormat, half

_BITS = np.arange(32, dtype=np.uint32)


def _nibbles(data: BytesArray) -> BytesArray:
    """(n, 16) -> (n, 32): low nibbles, then high."""
    return np.concatenate([data & np.uint8(15), data >> np.uint8(4)], axis=1)


def _five_bits(high: BytesArray, low: BytesArray) -> BytesArray:
    """(n, 4) and (n, 16) -> (n, 32) in 0..31."""
    fifth = ((high.view("<u4") >> _BITS) & np.uint32(1)).astype(np.uint8)
    return _nibbles(low) | (fifth << np.uint8(4))


def _signed(q: BytesArray, zero: int) -> npt.NDArray[np.float32]:
    return (q.view(np.int8) - np.int8(zero)).astype(np.float32)


def _q4_0(b: BytesArray) -> F32Array:
    return half(b[:, :2]) * _signed(_nibbles(b[:, 2:]), 8)


def _q4_1(b: BytesArray) -> F32Array:
    return half(b[:, :2]) * _nibbles(b[:, 4:]).astype(np.float32) + half(b[:, 2:4])


def _q5_0(b: BytesArray) -> F32Array:
    return half(b[:, :2]) * _signed(_five_bits(b[:, 2:6], b[:, 6:]), 16)


def _q5_1(b: BytesArray) -> F32Array:
    return half(b[:, :2]) * _five_bits(b[:, 4:8], b[:, 8:]).astype(np.float32) + half(b[:, 2:4])


def _q8_0(b: BytesArray) -> F32Array:
    return b[:, 2:].view(np.int8).astype(np.float32) * half(b[:, :2])


Q4_0 = BlockFormat("q4_0", 2, 32, 18, _q4_0)
Q4_1 = BlockFormat("q4_1", 3, 32, 20, _q4_1)
Q5_0 = BlockFormat("q5_0", 6, 32, 22, _q5_0)
Q5_1 = BlockFormat("q5_1", 7, 32, 24, _q5_1)
Q8_0 = BlockFormat("q8_0", 8, 32, 34, _q8_0)
