"""float32 values -> the bytes of a format: how weights are quantized when they are loaded.

Elementwise float32 only, sums in one fixed order, every tie decided: the same values give the same bits on any machine
and in any chunks. METHOD is the version of these bits and stands in the answer class.

  f32    exact.
  bf16   rounded to nearest, ties to even.
  q8_0   per 32 values a scale amax / 127 (f16); codes to nearest, ties away from zero: the bits of ggml's quantizer.
  q4_1   per 32 values a scale and a minimum (f16), fitted to the least squared error; see `_fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forebay.ops.tensor import BytesArray, F32Array

METHOD = 1  # bump whenever the bits made of some values may change
GROUP = 32  # values that share a scale

F16Array = npt.NDArray[np.float16]
_ONE, _ZERO = np.float32(1), np.float32(0)
_LEVELS = np.float32(15)  # the largest code of q4_1
# Where 16 levels may begin and end, in steps of a block's own range. Cutting 0.45 steps off one end or both leaves 23 %
# less squared error than minimum and maximum do, on trained weights; nine ranges instead of four 24 %.
_RANGES = tuple((np.float32(first), np.float32(last)) for first in (0.0, 0.45) for last in (15.0, 14.55))


def quantize(values: F32Array, format_name: str) -> BytesArray:
    """(rows, columns) float32 -> (rows, bytes per row) uint8 in "f32", "bf16", "q8_0" or "q4_1".

    Columns must be a multiple of 32 for q8_0 and q4_1. Raises ValueError where these would hold a NaN, an infinity or
    a scale beyond f16.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _ENCODERS[format_name](np.ascontiguousarray(values, np.float32))


def _f32(values: F32Array) -> BytesArray:
    return values.astype("<f4", copy=False).view(np.uint8)


def _bf16(values: F32Array) -> BytesArray:
    word = values.view(np.uint32)
    rounded = (word + (np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    quiet = (word >> np.uint32(16)) | np.uint32(0x40)  # a NaN stays one, whatever bits of its payload are cut off
    return np.where(np.isnan(values), quiet, rounded).astype("<u2").view(np.uint8)


def _q8_0(values: F32Array) -> BytesArray:
    blocks = values.reshape(-1, GROUP)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    stored = _half(scale)
    product = blocks * _inverse(scale)
    whole = np.trunc(product)
    # half a step away from zero where the rest, which is exact, is a half or more
    codes = whole + np.trunc((product - whole) * np.float32(2))
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = stored.view(np.uint8)
    out[:, 2:] = codes.astype(np.int8).view(np.uint8)
    return out.reshape(len(values), -1)


def _q4_1(values: F32Array) -> BytesArray:
    fitted = _fit(np.ascontiguousarray(values.reshape(-1, GROUP).T))
    codes = fitted.codes.astype(np.uint8)
    out = np.empty((codes.shape[1], 20), np.uint8)
    out[:, 0:2] = fitted.scale.view(np.uint8).reshape(-1, 2)
    out[:, 2:4] = fitted.minimum.view(np.uint8).reshape(-1, 2)
    out[:, 4:] = (codes[:16] | (codes[16:] << np.uint8(4))).T
    return out.reshape(len(values), -1)


class _Fitted(NamedTuple):
    """A scale and a minimum per block as stored, the nearest codes (32, blocks), and the sum of squared errors."""

    scale: F16Array
    minimum: F16Array
    codes: F32Array
    error: F32Array


def _fit(x: F32Array) -> _Fitted:
    """Blocks as columns (32, n) -> scale and minimum of 16 levels.

    For given codes the best scale and minimum are those of linear regression. Codes are first taken from each range of
    _RANGES, then once more from the best line so far. That line and the plain minimum and maximum are rounded to f16,
    codes chosen for what is stored, and of the two the better one is kept.
    """
    low, high = x.min(axis=0), x.max(axis=0)
    step = (high - low) / _LEVELS
    plain = _rounded(x, _half(step), _half(low))
    unit = (x - low) * _inverse(step)  # 0 .. 15
    sum_unit = _sum(unit)
    line = _Line(np.zeros_like(step), np.ones_like(step), np.zeros_like(step))
    for first, last in _RANGES:
        codes = np.clip(unit, first, last)
        codes -= first
        codes *= _LEVELS / (last - first)
        line = _steeper(line, _regression(unit, np.rint(codes, out=codes), sum_unit))
    line = _steeper(line, _regression(unit, _codes(unit, line.slope, line.offset), sum_unit))
    scale, minimum = line.slope * step, line.offset * step + low
    return _better(plain, _rounded(x, scale.astype("<f2"), minimum.astype("<f2")))


class _Line(NamedTuple):
    """Per block unit = slope * code + offset, and how much squared error that explains (times 32)."""

    gain: F32Array
    slope: F32Array
    offset: F32Array


def _regression(unit: F32Array, codes: F32Array, sum_unit: F32Array) -> _Line:
    """Linear regression of unit on codes, per column."""
    count = np.float32(GROUP)
    sum_codes = _sum(codes)
    covariance = count * _sum(codes * unit) - sum_codes * sum_unit
    slope = covariance * _inverse(count * _sum(codes * codes) - sum_codes * sum_codes)
    return _Line(covariance * slope, slope, (sum_unit - slope * sum_codes) * (_ONE / count))


def _codes(x: F32Array, scale: F32Array, minimum: F32Array) -> F32Array:
    """The nearest of 16 levels, ties to the even one."""
    codes = x - minimum
    codes *= _inverse(scale)
    np.rint(codes, out=codes)
    return np.clip(codes, _ZERO, _LEVELS, out=codes)


def _rounded(x: F32Array, scale: F16Array, minimum: F16Array) -> _Fitted:
    """The codes nearest to x for a scale and a minimum as they are stored."""
    d, m = scale.astype(np.float32), minimum.astype(np.float32)
    codes = _codes(x, d, m)
    error = codes * d
    error += m
    error -= x
    return _Fitted(scale, minimum, codes, _sum(np.square(error, out=error)))


def _steeper(one: _Line, other: _Line) -> _Line:
    """Per block the one that explains more; `one` where they are equal."""
    more = other.gain > one.gain
    return _Line(*(np.where(more, theirs, ours) for ours, theirs in zip(one, other, strict=True)))


def _better(one: _Fitted, other: _Fitted) -> _Fitted:
    """Per block the one with the smaller error; `one` where they are equal."""
    better = other.error < one.error
    return _Fitted(
        np.where(better, other.scale, one.scale),
        np.where(better, other.minimum, one.minimum),
        np.where(better, other.codes, one.codes),
        np.where(better, other.error, one.error),
    )


def _sum(x: F32Array) -> F32Array:
    """(32, n) -> (n,), added in halves: an order that no library chooses."""
    halves = x[:16] + x[16:]
    for half in (8, 4, 2, 1):
        halves[:half] += halves[half : 2 * half]
    total: F32Array = halves[0]
    return total


def _inverse(x: F32Array) -> F32Array:
    """1 / x, and 0 where that is infinite: a block that small holds nothing but zeros."""
    inverse = _ONE / x
    return np.where(np.isinf(inverse), _ZERO, inverse)


def _half(x: F32Array) -> F16Array:
    """As f16. ValueError if one is NaN or beyond it."""
    out = x.astype("<f2")
    if not np.isfinite(out).all():
        raise ValueError("holds a value that is not finite or too large for a scale in f16")
    return out


_ENCODERS: Mapping[str, Callable[[F32Array], BytesArray]] = MappingProxyType(
    {"f32": _f32, "bf16": _bf16, "q8_0": _q8_0, "q4_1": _q4_1}
)
