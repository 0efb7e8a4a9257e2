"""Plain float formats: f32, f16, bf16 (the upper half of an f32)."""

from __future__ import annotations

import numpy as np

from forebay.ops.tensor import BytesArray, F32Array
from forebay.weights.formats.base import BlockFormat


def _f32(data: BytesArray) -> F32Array:
    return np.require(data.view("<f4"), dtype=np.float32, requirements=["C", "A"])  # safetensors may be unaligned


def _f16(data: BytesArray) -> F32Array:
    return data.view("<f2").astype(np.float32)


def _bf16(data: BytesArray) -> F32Array:
    return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


F32 = BlockFormat("f32", 0, 1, 4, _f32)
F16 = BlockFormat("f16", 1, 1, 2, _f16)
BF16 = BlockFormat("bf16", 30, 1, 2, _bf16)
