"""embed, rms_norm, rope, act_mul, add, scale, softcap, rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forebay.ops.protocol import RopeTable
from forebay.ops.tensor import F32Array
from forebay.weights.formats import FORMATS
from tests.ops.harness import (
    GENERIC,
    NO_KV,
    REFERENCE,
    apply,
    bits,
    f32_tensor,
    limits,
    random_tensor,
    step,
    variants,
)

SHAPES = [(1, 1), (1, 16), (3, 7), (5, 48), (2, 97), (13, 576), (0, 32)]


def table(rotary_dim: int, positions: int = 512) -> RopeTable:
    angle = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)[None, :]
    return RopeTable(np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32))


def weight_of(width: int) -> F32Array:
    return np.random.default_rng(width).standard_normal(width).astype(np.float32)


UNARY: dict[str, Callable[[int], Any]] = {
    "rms_norm": lambda width: lambda ops, x: ops.rms_norm(x, weight_of(width), 1e-5),
    "scale": lambda width: lambda ops, x: ops.scale(x, 0.3),
    "softcap": lambda width: lambda ops, x: ops.softcap(x, 30.0),
}
BINARY: dict[str, Callable[[int], Any]] = {
    "add": lambda width: lambda ops, x, y: ops.add(x, y),
    "silu": lambda width: lambda ops, x, y: ops.act_mul(x, y, "silu"),
    "gelu_tanh": lambda width: lambda ops, x, y: ops.act_mul(x, y, "gelu_tanh"),
}


def inputs(rows: int, width: int, count: int) -> list[F32Array]:
    rng = np.random.default_rng(rows * 1000 + width)
    return [(rng.standard_normal((rows, width)) * 4).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_near_the_reference_and_equal_in_bits(name: str, rows: int, width: int) -> None:
    op = (UNARY.get(name) or BINARY[name])(width)
    given = inputs(rows, width, 1 if name in UNARY else 2)
    wanted, generic = apply(REFERENCE, op, *given), apply(GENERIC, op, *given)
    np.testing.assert_allclose(generic, wanted, rtol=3e-6, atol=3e-6)
    for backend in variants():
        assert (bits(apply(backend, op, *given)) == bits(generic)).all(), backend.choices()


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(4, 4), (8, 8), (64, 64), (72, 72), (80, 32), (6, 2)])
@pytest.mark.parametrize("heads", [1, 3])
def test_rope(heads: int, head_dim: int, rotary_dim: int) -> None:
    (x,) = inputs(7, heads * head_dim, 1)
    positions = list(range(301, 308))

    def op(ops: Any, value: Any) -> Any:
        return ops.rope(value, head_dim, table(rotary_dim))

    wanted, generic = apply(REFERENCE, op, x, positions=positions), apply(GENERIC, op, x, positions=positions)
    np.testing.assert_allclose(generic, wanted, rtol=1e-6, atol=2e-6)
    for backend in variants():
        assert (bits(apply(backend, op, x, positions=positions)) == bits(generic)).all(), backend.choices()


def test_rms_norm_per_head() -> None:
    (x,) = inputs(5, 6 * 24, 1)

    def op(ops: Any, value: Any) -> Any:
        return ops.rms_norm(value, weight_of(24), 1e-6)

    wanted, generic = apply(REFERENCE, op, x), apply(GENERIC, op, x)
    np.testing.assert_allclose(generic, wanted, rtol=2e-6, atol=1e-6)
    for backend in variants():
        assert (bits(apply(backend, op, x)) == bits(generic)).all()


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-40, -1e-40, 88.0, -88.0, 1e4, -1e4, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["silu", "gelu_tanh"])
def test_activations_of_extreme_values(name: str, value: float) -> None:
    x, ones = np.full((1, 16), value, np.float32), np.ones((1, 16), np.float32)
    with np.errstate(all="ignore"):
        wanted = apply(REFERENCE, BINARY[name](16), x, ones)
    for backend in variants():
        got = apply(backend, BINARY[name](16), x, ones)
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("name", FORMATS)
def test_embed_is_the_formats_own_values(name: str) -> None:
    weight = random_tensor(np.random.default_rng(8), name, 11, 256)
    token = [3, 0, 10, 3]

    def forward(ops: Any) -> None:
        ops.logits(ops.rows(ops.embed(weight)))

    for backend in [REFERENCE, *variants()]:
        got = backend.compile(forward, NO_KV, limits()).run_logits(step(token))
        assert (bits(got) == bits(weight.dequantize()[token])).all()


def test_rows_are_the_logit_rows() -> None:
    (x,) = inputs(9, 20, 1)

    def forward(ops: Any) -> None:
        ops.logits(ops.scale(ops.rows(ops.embed(f32_tensor(x))), 2.0))

    for backend in [REFERENCE, *variants()]:
        got = backend.compile(forward, NO_KV, limits()).run_logits(step(list(range(9)), logit_rows=[1, 2, 8]))
        assert (bits(got) == bits(x[[1, 2, 8]] * 2)).all()


def test_unknown_activation_is_refused() -> None:
    (x,) = inputs(1, 16, 1)
    for backend in [REFERENCE, GENERIC]:
        with pytest.raises(ValueError, match="activation"):
            apply(backend, lambda ops, a: ops.act_mul(a, a, "relu"), x)
