"""Rotary tables, computed in float64 so that every machine gets the same bits.

Formulas: arXiv:2104.09864 (RoPE), arXiv:2306.15595 (linear), arXiv:2309.00071 (NTK-aware, YaRN), Llama 3.1 (llama3).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from forebay.models.decoder_spec import RopeSpec
from forebay.ops.protocol import RopeTable

F64Array = npt.NDArray[np.float64]


def rope_table(rope: RopeSpec, max_model_len: int) -> RopeTable:
    """cos and sin of positions [0, max_model_len).

    `dynamic` depends on a sequence length; it is fixed at `max_model_len`, because stored K may depend on
    (token, position) alone.
    """
    angle = np.arange(max_model_len, dtype=np.float64)[:, None] * inverse_frequencies(rope, max_model_len)[None, :]
    factor = _attention_factor(rope)
    return RopeTable((np.cos(angle) * factor).astype(np.float32), (np.sin(angle) * factor).astype(np.float32))


def inverse_frequencies(rope: RopeSpec, max_model_len: int) -> F64Array:
    """(rotary_dim / 2,) float64."""
    exponent = np.arange(0, rope.rotary_dim, 2, dtype=np.float64) / rope.rotary_dim
    frequency = _base(rope, max_model_len) ** -exponent
    if rope.frequency_factors is not None:
        frequency = frequency / np.asarray(rope.frequency_factors, np.float64)
    if rope.kind == "linear":
        return frequency / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, frequency)
    if rope.kind == "yarn":
        return _yarn(rope, frequency)
    return frequency


def _base(rope: RopeSpec, max_model_len: int) -> float:
    if rope.kind != "dynamic" or max_model_len <= rope.original_max_position:
        return rope.base
    stretch = rope.factor * max_model_len / rope.original_max_position - (rope.factor - 1)
    return float(rope.base * stretch ** (rope.rotary_dim / (rope.rotary_dim - 2)))


def _llama3(rope: RopeSpec, frequency: F64Array) -> F64Array:
    turns = rope.original_max_position * frequency / (2 * math.pi)  # turns within the original context
    smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    smooth = np.clip(smooth, 0.0, 1.0)
    return (1 - smooth) * frequency / rope.factor + smooth * frequency


def _yarn(rope: RopeSpec, frequency: F64Array) -> F64Array:
    def dimension(turns: float) -> float:
        length = rope.original_max_position / (turns * 2 * math.pi)
        return rope.rotary_dim * math.log(length) / (2 * math.log(rope.base))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    span = high - low if high != low else 0.001  # the paper's ramp, kept from dividing by zero
    ramp = np.clip((np.arange(rope.rotary_dim // 2) - low) / span, 0.0, 1.0)
    blended: F64Array = frequency / rope.factor * ramp + frequency * (1 - ramp)
    return blended


def _attention_factor(rope: RopeSpec) -> float:
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    return 1.0 if rope.factor <= 1 else 0.1 * math.log(rope.factor) + 1.0
