"""linear: reference within rounding; any instruction set, thread count and row tiling equal in bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forebay.ops import _native
from forebay.ops.native import dequantize
from forebay.ops.reference.linear import quantize_rows
from forebay.ops.tensor import BytesArray, F32Array, Tensor
from forebay.weights.formats import FORMATS
from tests.ops.harness import GENERIC, ISAS, REFERENCE, apply, bits, random_tensor, variants

QUANTIZED = [name for name, fmt in FORMATS.items() if fmt.quantized]
PLAIN = [name for name in QUANTIZED if FORMATS[name].block_size == 32]
GROUP_BYTES = 48  # of 32 quantized activations
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


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("outputs", [31, 70])
def test_any_number_of_rows_gives_a_rows_own_bits(name: str, outputs: int) -> None:
    """Few rows, many rows and every tile in between take other paths through a kernel."""
    rng = np.random.default_rng(outputs)
    weight, x = random_tensor(rng, name, outputs, 512), rng.standard_normal((100, 512)).astype(np.float32)
    wanted = bits(apply(GENERIC, product(weight), x))
    for backend in variants():
        for rows in [*range(1, 14), 32, 100]:
            assert (bits(apply(backend, product(weight), x[:rows])) == wanted[:rows]).all(), (backend.choices(), rows)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("columns", [32, 64, 96, 576, 1536])
def test_any_number_of_groups(name: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    weight, x = random_tensor(rng, name, 35, columns), rng.standard_normal((15, columns)).astype(np.float32)
    wanted = apply(GENERIC, product(weight), x)
    assert (np.abs(wanted - apply(REFERENCE, product(weight), x)) <= bound(quantize_rows(x), weight)).all()
    for backend in variants():
        for rows in (1, 15):
            assert (bits(apply(backend, product(weight), x[:rows])) == bits(wanted[:rows])).all(), backend.choices()


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


def test_columns_that_fill_no_group_are_refused() -> None:
    x = np.zeros((1, 40), np.float32)
    with pytest.raises(ValueError, match="40 quantized columns"):
        _native.quantize("generic", x, np.zeros((1, GROUP_BYTES), np.uint8))


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("half", [np.inf, -np.inf, np.nan, 65504.0, 6e-8])
def test_hostile_scales_crash_nothing(name: str, half: float) -> None:
    """Scales from a file may be anything; the same outputs are NaN everywhere and the rest equal in bits."""
    rng = np.random.default_rng(8)
    weight, x = random_tensor(rng, name, 33, 256), rng.standard_normal((14, 256)).astype(np.float32)
    x[2] = 0.0
    at = 208 if name == "q6_k" else 0
    weight.data[5, at : at + 2] = np.array([half], np.float16).view(np.uint8)
    wanted = apply(GENERIC, product(weight), x)
    assert np.isfinite(np.delete(wanted, 5, axis=1)).all()
    assert np.isfinite(wanted[:, 5]).all() == np.isfinite(half)
    assert np.isnan(wanted[:, 5]).all() or not np.isnan(half)
    for backend in variants():
        for rows in (1, 14):
            got = apply(backend, product(weight), x[:rows])
            assert (np.isnan(got) == np.isnan(wanted[:rows])).all(), backend.choices()
            assert (np.where(np.isnan(got), 0, bits(got)) == np.where(np.isnan(got), 0, bits(wanted[:rows]))).all()


def stored(weight: Tensor, bias: F32Array | None) -> tuple[str, BytesArray, F32Array | None]:
    return weight.format.name, weight.data, bias


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows", [1, 5, 20])
def test_a_residual_equals_linear_then_add(name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    weight, x = random_tensor(rng, name, 45, 256), rng.standard_normal((rows, 256)).astype(np.float32)
    bias, residual = rng.standard_normal(45).astype(np.float32), rng.standard_normal((rows, 45)).astype(np.float32)
    wanted = residual + apply(GENERIC, product(weight, bias), x)
    for isa in ISAS:
        out = residual.copy()
        _native.linear_add(isa, stored(weight, bias), x, out)
        assert (bits(out) == bits(wanted)).all(), isa


def quantized(isa: str, x: F32Array) -> BytesArray:
    out = np.zeros((len(x), x.shape[1] // 32 * GROUP_BYTES), np.uint8)
    _native.quantize(isa, x, out)
    return out


@pytest.mark.parametrize("isa", ISAS)
def test_quantized_rows_hold_what_their_fields_say(isa: str) -> None:
    x = np.random.default_rng(9).standard_normal((3, 96)).astype(np.float32)
    groups = quantized(isa, x).reshape(3, 3, GROUP_BYTES)
    q = groups[..., :32].view(np.int8).astype(np.float32)
    scale, scaled_sum = (groups[..., at : at + 4].copy().view(np.float32)[..., 0] for at in (32, 36))
    start, half_start = (groups[..., at : at + 4].copy().view(np.int32)[..., 0] for at in (40, 44))
    assert (q * scale[..., None] == quantize_rows(x).reshape(3, 3, 32)).all()
    assert (scaled_sum == scale * q.sum(axis=-1)).all()
    assert (start == -128 * q.sum(axis=-1)).all()
    assert (half_start == -128 * q[..., :16].sum(axis=-1)).all()


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("rows", [0, 1, 7, 50])
@pytest.mark.parametrize(("gate_format", "up_format"), [("q4_1", "q4_1"), ("q4_0", "q8_0"), ("q4_k", "q6_k")])
def test_gated_equals_its_parts(gate_format: str, up_format: str, rows: int, activation: str) -> None:
    """Gate, up, activation, product and quantizing in one kernel, or one after the other."""
    rng = np.random.default_rng(rows)
    gate, up = (random_tensor(rng, name, 96, 256) for name in (gate_format, up_format))
    x, bias = rng.standard_normal((rows, 256)).astype(np.float32), rng.standard_normal(96).astype(np.float32)
    if rows:
        x[rows // 2, 3] = np.nan if rows == 7 else 0.0

    def parts(ops: Any, value: Any) -> Any:
        return ops.act_mul(ops.linear(value, gate, bias), ops.linear(value, up), activation)

    wanted = quantized("generic", apply(GENERIC, parts, x))
    for isa in ISAS:
        for threads in (1, 2, 5):
            out = np.zeros_like(wanted)
            weights = stored(gate, bias), stored(up, None)
            _native.linear_gated(isa, threads, activation == "silu", *weights, quantized(isa, x), out)
            assert (out == wanted).all(), (isa, threads)
