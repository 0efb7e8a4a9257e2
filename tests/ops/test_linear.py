"""linear: reference within rounding; any instruction set, thread count and row tiling equal in bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forebay.ops.native import dequantize
from forebay.ops.reference.linear import quantize_rows
from forebay.ops.tensor import F32Array, Tensor
from forebay.weights.formats import FORMATS
from tests.ops.harness import GENERIC, REFERENCE, apply, bits, random_tensor, variants

QUANTIZED = [name for name, fmt in FORMATS.items() if fmt.quantized]
SHAPES = [(1, 1, 256), (3, 17, 256), (7, 33, 512), (13, 64, 256), (0, 16, 256)]  # rows, outputs, columns


def product(weight: Tensor, bias: F32Array | None = None) -> Any:
    return lambda ops, x: ops.linear(x, weight, bias)


def bound(x: F32Array, weight: Tensor) -> F32Array:
    """An upper bound of the rounding of a float32 chain of `columns` steps: columns * eps * sum |x| |w|."""
    eps = np.float32(2.0**-24) * (weight.columns + 4)
    return eps * (np.abs(x) @ np.abs(weight.dequantize()).T) + np.float32(1e-6)


@pytest.mark.parametrize("name", FORMATS)
def test_unpacking_equals_the_formats_specification(name: str) -> None:
    weight = random_tensor(np.random.default_rng(1), name, 5, 512)
    assert (bits(dequantize(weight)) == bits(weight.dequantize())).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("rows", "outputs", "columns"), SHAPES)
def test_generic_is_near_the_reference(name: str, rows: int, outputs: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    weight, x = random_tensor(rng, name, outputs, columns), rng.standard_normal((rows, columns)).astype(np.float32)
    got, wanted = apply(GENERIC, product(weight), x), apply(REFERENCE, product(weight), x)
    assert got.shape == (rows, outputs)
    used = quantize_rows(x) if weight.format.quantized and rows else x
    assert (np.abs(got - wanted) <= bound(used, weight)).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("rows", "outputs", "columns"), SHAPES)
def test_every_variant_has_the_bits_of_generic(name: str, rows: int, outputs: int, columns: int) -> None:
    rng = np.random.default_rng(rows + 1)
    weight = random_tensor(rng, name, outputs, columns)
    x = (rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-20, 20, (rows, columns))).astype(np.float32)
    bias = rng.standard_normal(outputs).astype(np.float32)
    wanted = bits(apply(GENERIC, product(weight, bias), x))
    for backend in variants():
        assert (bits(apply(backend, product(weight, bias), x)) == wanted).all(), backend.choices()


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("columns", [1, 37])
def test_float_formats_take_any_number_of_columns(name: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    weight, x = random_tensor(rng, name, 19, columns), rng.standard_normal((11, columns)).astype(np.float32)
    wanted = bits(apply(GENERIC, product(weight), x))
    assert (np.abs(wanted.view(np.float32) - apply(REFERENCE, product(weight), x)) <= bound(x, weight)).all()
    for backend in variants():
        assert (bits(apply(backend, product(weight), x)) == wanted).all(), backend.choices()


@pytest.mark.parametrize("name", ["f32", "f16", "q4_1", "q8_0", "q6_k"])
def test_a_row_does_not_see_its_neighbours(name: str) -> None:
    rng = np.random.default_rng(7)
    weight, x = random_tensor(rng, name, 40, 256), rng.standard_normal((31, 256)).astype(np.float32)
    for backend in variants():
        together = bits(apply(backend, product(weight), x))
        for first, last in [(0, 1), (3, 5), (11, 14), (8, 23), (30, 31)]:
            assert (bits(apply(backend, product(weight), x[first:last])) == together[first:last]).all(), (
                backend.choices()
            )


@pytest.mark.parametrize("name", QUANTIZED)
def test_extreme_codes_do_not_saturate(name: str) -> None:
    weight = random_tensor(np.random.default_rng(2), name, 16, 512)
    weight.data[:] = np.where(
        np.isin(np.arange(weight.data.shape[1]) % weight.format.block_bytes, [0, 1, 2, 3, 208, 209]), weight.data, 255
    )
    x = np.where(np.arange(512) % 2, 1.0, -1.0).astype(np.float32)[None, :] * np.ones((3, 1), np.float32)
    x[1], x[2] = 1.0, -1.0
    wanted = apply(REFERENCE, product(weight), x)
    for backend in variants():
        got = apply(backend, product(weight), x)
        assert (np.abs(got - wanted) <= bound(x, weight)).all(), backend.choices()


def test_ties_of_the_activations_round_to_even() -> None:
    x = np.zeros((1, 256), np.float32)
    x[0, :5] = [127.0, 0.5, 1.5, 2.5, -0.5]  # scale is exactly 1: q = 127, 0, 2, 2, 0
    data = np.zeros((1, 256 // 32, 34), np.uint8)
    data[..., :2] = np.array([1.0], np.float16).view(np.uint8)
    data[0, 0, 2:7] = [0, 1, 10, 100, 50]
    weight = Tensor("w", FORMATS["q8_0"], 1, 256, data.reshape(1, -1))
    for backend in variants():
        assert apply(backend, product(weight), x)[0, 0] == 220.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_activation_shows_in_its_row_only(bad: float) -> None:
    rng = np.random.default_rng(3)
    weight, x = random_tensor(rng, "q4_1", 20, 256), rng.standard_normal((9, 256)).astype(np.float32)
    clean = bits(apply(GENERIC, product(weight), x))
    x[4, 100] = bad
    for backend in variants():
        got = apply(backend, product(weight), x)
        assert np.isnan(got[4]).all()
        assert (np.delete(bits(got), 4, axis=0) == np.delete(clean, 4, axis=0)).all()


def test_tiny_activations_quantize_to_zero_without_nan() -> None:
    weight = random_tensor(np.random.default_rng(4), "q8_0", 8, 32)
    x = np.full((2, 32), 1e-40, np.float32)
    x[1, 0] = 1.0
    for backend in variants():
        got = apply(backend, product(weight), x)
        assert (got[0] == 0).all()
        assert np.isfinite(got).all()


def test_one_input_feeds_several_linears() -> None:
    rng = np.random.default_rng(5)
    first, second = random_tensor(rng, "q4_0", 24, 256), random_tensor(rng, "q8_0", 24, 256)
    x = rng.standard_normal((5, 256)).astype(np.float32)

    def both(ops: Any, value: Any) -> Any:
        return ops.add(ops.linear(value, first), ops.linear(value, second))

    alone = apply(GENERIC, product(first), x) + apply(GENERIC, product(second), x)
    for backend in variants():
        assert (bits(apply(backend, both, x)) == bits(alone)).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    weight = random_tensor(np.random.default_rng(6), "q4_0", 4, 64)
    with pytest.raises(ValueError, match="width 32"):
        apply(GENERIC, product(weight), np.zeros((1, 32), np.float32))
