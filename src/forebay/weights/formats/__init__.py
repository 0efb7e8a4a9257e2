"""How a matrix is stored. A new format is one entry here; its native kernels register by the same name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from forebay.weights.formats.base import BlockFormat
from forebay.weights.formats.floats import BF16, F16, F32
from forebay.weights.formats.k_quants import Q4_K, Q5_K, Q6_K
from forebay.weights.formats.legacy_quants import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0

_ALL = (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K)

FORMATS: Mapping[str, BlockFormat] = MappingProxyType({f.name: f for f in _ALL})
"""Format name ("q4_1") -> format."""

FORMATS_BY_GGML_TYPE: Mapping[int, BlockFormat] = MappingProxyType({f.ggml_type: f for f in _ALL})
"""GGUF tensor type id -> format."""

__all__ = ["FORMATS", "FORMATS_BY_GGML_TYPE", "BlockFormat"]
