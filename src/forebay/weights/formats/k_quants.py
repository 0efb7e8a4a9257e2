"""GGUF's K-quants: super-blocks of 256 values in 8 groups of 32 (q6_k: 16 of 16) with quantized scales.

Source: ggml-common.h and ggml-quants.c of ggml (MIT).
  q4_k: d f16, dmin f16, 12 bytes of 6-bit scales and minimums, 128 bytes of nibbles.    value = (d*sc)*q - dmin*m
  q5_k: as q4_k with 32 bytes of fifth bits before the nibbles.
  q6_k: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, d f16.     value = (d*sc)*(q - 32)
"""

from __future__ import annotations

import numpy as np

from forebay.ops.tensor import BytesArray, F32Array
from forebay.weights.formats.base import BlockFormat, half

_NIBBLE_SHIFTS = np.array([0, 4], dtype=np.uint8).reshape(2, 1)
_PAIR_SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(4, 1)
_BIT_SHIFTS = np.arange(8, dtype=np.uint8).reshape(8, 1)


def _scales_and_minimums(packed: BytesArray) -> tuple[BytesArray, BytesArray]:
    """12 bytes -> 8 six-bit scales and 8 six-bit minimums.

    Bytes 0-3 hold scales 0-3, bytes 4-7 minimums 0-3 (low six bits each); bytes 8-11 hold the low nibbles of scales 4-7
    and (high half) of minimums 4-7, whose upper two bits are the upper two bits of bytes 0-3 and 4-7.
    """
    a, b, c = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([a & 0x3F, (c & 0x0F) | ((a >> 2) & 0x30)], axis=1)
    minimums = np.concatenate([b & 0x3F, (c >> 4) | ((b >> 2) & 0x30)], axis=1)
    return scales, minimums


def _scaled(b: BytesArray, q: BytesArray) -> F32Array:
    """Values from the 16-byte head of a q4_k or q5_k block and its quants (n, 8, 32)."""
    scales, minimums = _scales_and_minimums(b[:, 4:16])
    d = (half(b[:, 0:2]) * scales.astype(np.float32))[:, :, None]
    m = (half(b[:, 2:4]) * minimums.astype(np.float32))[:, :, None]
    return (d * q.astype(np.float32) - m).reshape(-1, 256)


def _nibbles(data: BytesArray, run: int) -> BytesArray:
    """(n, 128) -> (n, 8, 32): per `run` bytes, all low nibbles, then all high ones."""
    return ((data.reshape(-1, 128 // run, 1, run) >> _NIBBLE_SHIFTS) & np.uint8(15)).reshape(-1, 8, 32)


def _q4_k(b: BytesArray) -> F32Array:
    return _scaled(b, _nibbles(b[:, 16:], 32))


def _q5_k(b: BytesArray) -> F32Array:
    fifth = (b[:, 16:48].reshape(-1, 1, 32) >> _BIT_SHIFTS) & np.uint8(1)  # bit g of byte i: value i of group g
    return _scaled(b, _nibbles(b[:, 48:], 32) | (fifth << np.uint8(4)))


def _q6_k(b: BytesArray) -> F32Array:
    low, pairs, scales = b[:, :128], b[:, 128:192], b[:, 192:208].view(np.int8)
    high = ((pairs.reshape(-1, 2, 1, 32) >> _PAIR_SHIFTS) & np.uint8(3)).reshape(-1, 8, 32)
    q = (_nibbles(low, 64) | (high << np.uint8(4))).view(np.int8) - np.int8(32)
    d = (half(b[:, 208:210]) * scales.astype(np.float32))[:, :, None]
    return (d * q.reshape(-1, 16, 16).astype(np.float32)).reshape(-1, 256)


Q4_K = BlockFormat("q4_k", 12, 256, 144, _q4_k)
Q5_K = BlockFormat("q5_k", 13, 256, 176, _q5_k)
Q6_K = BlockFormat("q6_k", 14, 256, 210, _q6_k)
