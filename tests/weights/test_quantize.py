"""Bits made when weights are quantized: against slow plain code, against the `gguf` package, and against themselves."""

from __future__ import annotations

import hashlib
import itertools
import math

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forebay.ops.tensor import BytesArray, F32Array
from forebay.weights.formats import FORMATS
from forebay.weights.quantize import METHOD, quantize


def weights(rows: int, columns: int, seed: int = 0) -> F32Array:
    """Like a trained matrix: a spread of its own for each row, and a few outliers."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, columns)) * rng.uniform(0.01, 0.2, (rows, 1))
    values[rng.random(values.shape) < 0.01] *= 6
    return values.astype(np.float32)


def degenerate() -> F32Array:
    """One block a row: zeros of both signs, a constant, one value alone, two values, the smallest and the largest."""
    rows = np.zeros((9, 32), np.float32)
    rows[1] = -0.0
    rows[2] = 0.25
    rows[3, 7] = -3.0
    rows[4, ::2] = 1.5
    rows[5] = np.float32(1e-45)
    rows[6] = np.linspace(-1e-39, 2e-38, 32)
    rows[7] = np.linspace(-60000, 65000, 32)
    rows[8] = np.linspace(0, 3e-7, 32)
    return rows


def error(values: F32Array, data: BytesArray, name: str) -> F32Array:
    """Squared error of each block, in float64."""
    made = FORMATS[name].dequantize(data, values.shape[1]).astype(np.float64)
    return np.asarray(np.square(made - values).reshape(-1, 32).sum(axis=1))


def oracle(values: F32Array, name: str) -> BytesArray:
    return np.asarray(gguf.quantize(values, GGMLQuantizationType[name.upper()]))


def f32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def slow_q8_0(block: F32Array) -> bytes:
    """One block, value by value; Python floats rounded to float32 after every operation."""
    scale = f32(max(abs(float(v)) for v in block) / 127)
    inverse = f32(1 / scale) if scale > 0 and math.isfinite(f32(1 / scale)) else 0.0
    codes = []
    for v in block:
        product = f32(float(v) * inverse)
        codes.append(int(math.copysign(math.floor(abs(product) + 0.5), product)))  # exact in float64
    return np.float16(np.float32(scale)).tobytes() + np.array(codes, np.int8).tobytes()


def nearest_codes(block: F32Array, scale: float, minimum: float) -> tuple[list[int], float]:
    """The best codes there are for a scale and a minimum, and their squared error: all 16 are tried for each value."""
    levels = [scale * code + minimum for code in range(16)]
    codes = [min(range(16), key=lambda code: abs(levels[code] - float(v))) for v in block]
    return codes, sum((levels[code] - float(v)) ** 2 for code, v in zip(codes, block, strict=True))


@pytest.mark.parametrize("values", [weights(40, 96), degenerate()], ids=["weights", "degenerate"])
def test_q8_0_equals_the_slow_code(values: F32Array) -> None:
    wanted = b"".join(slow_q8_0(block) for block in values.reshape(-1, 32))
    assert quantize(values, "q8_0").tobytes() == wanted


def test_q8_0_has_the_bits_of_ggml() -> None:
    values = weights(64, 256, seed=1)
    values[0, :32] = np.arange(32) - 15.5
    values[0, 0] = 127  # so that the scale is 1
    np.testing.assert_array_equal(quantize(values, "q8_0"), oracle(values, "q8_0"))
    codes = quantize(values, "q8_0")[0, 2:34].view(np.int8)
    assert codes[1:4].tolist() == [-15, -14, -13]  # -14.5, -13.5, -12.5: ties go away from zero
    assert codes[29:32].tolist() == [14, 15, 16]


def test_the_error_of_q8_0_is_half_a_step() -> None:
    values = weights(64, 256, seed=2)
    made = FORMATS["q8_0"].dequantize(quantize(values, "q8_0"), 256)
    largest = np.abs(values).reshape(-1, 32).max(axis=1).repeat(32).reshape(values.shape)
    # half a step, and 127 steps times the rounding of the scale to 11 bits
    assert (np.abs(made - values) <= largest / 127 * (0.5 + 127 * 2.0**-11)).all()


@pytest.mark.parametrize("values", [weights(40, 96), degenerate()], ids=["weights", "degenerate"])
def test_q4_1_codes_are_the_nearest_to_what_is_stored(values: F32Array) -> None:
    data = quantize(values, "q4_1").reshape(-1, 20)
    for block, stored, found in zip(values.reshape(-1, 32), data, error(values, data.reshape(len(values), -1), "q4_1"),
                                    strict=True):  # fmt: skip
        scale, minimum = (float(v) for v in stored[:4].view("<f2"))
        codes, best = nearest_codes(block, scale, minimum)
        got = [int(b) & 15 for b in stored[4:]] + [int(b) >> 4 for b in stored[4:]]
        assert found <= best * (1 + 1e-4) + 1e-12 * float(np.abs(block).max()) ** 2  # a tie may fall either way
        assert sum(a != b for a, b in zip(got, codes, strict=True)) <= 1 or scale == 0


@given(
    hnp.arrays(np.float32, (3, 64), elements=st.floats(-1000, 1000, width=32)),
    st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_q4_1_is_never_worse_than_minimum_and_maximum(values: F32Array, scale: float) -> None:
    scaled = (values * np.float32(scale)).astype(np.float32)
    with np.errstate(all="ignore"):  # of the package, in blocks of the smallest numbers
        plain = error(scaled, oracle(scaled, "q4_1"), "q4_1")
    ours = error(scaled, quantize(scaled, "q4_1"), "q4_1")
    # both are sums of float32 roundings of the same values
    assert (ours <= plain * (1 + 1e-4) + 1e-10 * np.square(scaled).reshape(-1, 32).sum(axis=1)).all()


def test_q4_1_is_much_better_than_minimum_and_maximum_on_weights() -> None:
    values = weights(512, 512, seed=3)
    ours, plain = error(values, quantize(values, "q4_1"), "q4_1"), error(values, oracle(values, "q4_1"), "q4_1")
    assert (ours <= plain * (1 + 1e-4)).all()
    assert ours.sum() < 0.85 * plain.sum()


def test_q4_1_is_near_the_best_there_is() -> None:
    """A search over 40,000 scales and minimums for each of a few blocks finds little that is better."""
    values = weights(8, 32, seed=4)
    found = error(values, quantize(values, "q4_1"), "q4_1")
    for block, ours in zip(values, found, strict=True):
        low, high = float(block.min()), float(block.max())
        grid = itertools.product(np.linspace(0, 0.3, 200), np.linspace(0, 0.3, 200))
        pairs = np.array([(low + a * (high - low), high - b * (high - low)) for a, b in grid])
        step = ((pairs[:, 1] - pairs[:, 0]) / 15)[:, None]
        codes = np.clip(np.rint((block - pairs[:, :1]) / step), 0, 15)
        best = np.square(pairs[:, :1] + codes * step - block).sum(axis=1).min()
        assert ours <= 1.2 * best


@pytest.mark.parametrize("name", ["q8_0", "q4_1", "bf16", "f32"])
def test_a_block_does_not_see_its_neighbours(name: str) -> None:
    """So no bit depends on how a matrix is cut up to be quantized."""
    values = np.concatenate([weights(37, 64, seed=5), degenerate().repeat(2, axis=1)])
    whole = quantize(values, name)
    for row in range(len(values)):
        np.testing.assert_array_equal(quantize(values[row : row + 1], name)[0], whole[row])
    np.testing.assert_array_equal(quantize(values[::-1], name)[::-1], whole)


def test_bf16_rounds_as_torch_does() -> None:
    words = np.random.default_rng(6).integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    edges = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x00000001, 0x80000000], np.uint32)
    values = np.concatenate([edges, words]).view(np.float32)
    values = values[~np.isnan(values)].reshape(1, -1)
    wanted = torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint8)
    np.testing.assert_array_equal(quantize(values, "bf16"), wanted)


def test_bf16_keeps_a_nan() -> None:
    words = np.array([[0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFFC00000]], np.uint32)
    assert np.isnan(FORMATS["bf16"].dequantize(quantize(words.view(np.float32), "bf16"), 4)).all()


@pytest.mark.parametrize("name", ["q8_0", "q4_1"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_what_has_no_scale_is_refused(name: str, bad: float) -> None:
    values = weights(2, 64)
    values[1, 40] = bad
    with pytest.raises(ValueError, match="not finite or too large"):
        quantize(values, name)


def test_the_bits_are_those_of_this_version() -> None:
    """If this fails because the method was changed, METHOD must go up: caches of another version must not be read."""
    words = np.arange(64 * 256, dtype=np.uint32) * np.uint32(2654435761)  # no generator that may change
    unit = words.view(np.int32).astype(np.float32).reshape(64, 256) * np.float32(2.0**-31)
    values = np.concatenate([unit * unit * unit, np.tile(degenerate(), 8)])
    digests = {name: hashlib.sha256(quantize(values, name)).hexdigest()[:16] for name in ("q8_0", "q4_1", "bf16")}
    assert METHOD == 1
    assert digests == {"q8_0": "b2da318c862bf8e1", "q4_1": "b2b884b71202a096", "bf16": "cb1310d528d884ee"}
