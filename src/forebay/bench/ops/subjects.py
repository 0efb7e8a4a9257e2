"""How each op is recorded so that it can be measured alone: its inputs, then a number of copies of it.

Every copy reads the same inputs and, where it has one, its own weight or cache layer, so that more copies mean a larger
working set. With no copies what remains is the cost of feeding a plan, to be subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.bench.ops.model_shape import ModelShape
from forebay.bench.ops.synthetic import f32_tensor, random_floats, random_weight, rope_table
from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.ops.protocol import Ops

BLOCK_SIZE = 16
KV_DTYPES = ("f16", "int8")
_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Extent:
    """What a recording must fit. rows: most rows of a step; context: positions below it; layers: of the KV cache."""

    rows: int
    context: int
    layers: int


Record = Callable[[Ops[Any], int], None]  # (ops, copies): a whole forward pass that ends in ops.logits


@dataclass(frozen=True, slots=True)
class Subject:
    """An op as recorded in one plan.

    make: (random generator, extent) -> the recording; equal generators give equal weights and inputs.
    format: of a weight, or of the cache. observe: for an op without an output, a recording whose logits show what it
    did; None: `make`'s logits are the output. has_cache: it needs KV layers. writes: its steps write K and V. all_rows:
    its cost grows with the logit rows, so every row is one. samples: sampling is measured, not the forward pass.
    """

    op: str
    make: Callable[[np.random.Generator, Extent], Record]
    variant: str = ""
    format: str | None = None
    observe: Callable[[np.random.Generator, Extent], Record] | None = None
    has_cache: bool = False
    writes: bool = False
    all_rows: bool = False
    samples: bool = False


def kv_spec(subject: Subject, shape: ModelShape, layers: int) -> KVSpec:
    if not subject.has_cache:
        return KVSpec(groups=(), block_size=BLOCK_SIZE)
    return KVSpec(groups=(kv_group(shape, str(subject.format), layers),), block_size=BLOCK_SIZE)


def kv_group(shape: ModelShape, dtype: str, layers: int) -> KVGroup:
    return KVGroup(tuple(range(layers)), shape.kv_heads, shape.head_dim, dtype)


Apply = Callable[..., Any]  # (ops, *inputs) -> output


def _repeated(widths: tuple[int, ...], make_op: Callable[[np.random.Generator, Extent], Apply]) -> Any:
    """The `make` of an op from inputs of these widths to an output."""

    def make(rng: np.random.Generator, extent: Extent) -> Record:
        inputs = [f32_tensor(random_floats(rng, extent.rows, width)) for width in widths]
        apply = make_op(rng, extent)

        def record(ops: Ops[Any], copies: int) -> None:
            given = [ops.embed(tensor) for tensor in inputs]
            out = given[0]
            for _ in range(copies):
                out = apply(ops, *given)
            ops.logits(ops.rows(out))

        return record

    return make


def linear(role: str, outputs: int, columns: int, format_name: str) -> Subject:
    def make_op(rng: np.random.Generator, _: Extent) -> Apply:
        weight = random_weight(rng, format_name, outputs, columns)
        return lambda ops, x: ops.linear(x, weight)

    return Subject("linear", _repeated((columns,), make_op), f"{role} {outputs}x{columns}", format_name)


def embed(shape: ModelShape) -> Subject:
    def make(rng: np.random.Generator, extent: Extent) -> Record:
        table = random_weight(rng, shape.embed_format, max(shape.vocab, extent.rows), shape.hidden)
        unused = f32_tensor(np.zeros((extent.rows, 1), np.float32))
        places = table.rows // extent.rows

        def record(ops: Ops[Any], copies: int) -> None:
            out = ops.embed(unused)
            for copy in reversed(range(copies)):  # the last one, whose output is seen, at the table's beginning
                first = copy % places * extent.rows
                out = ops.embed(table.select_rows(slice(first, first + extent.rows)))
            ops.logits(ops.rows(out))

        return record

    return Subject("embed", make, f"width {shape.hidden}", shape.embed_format)


def rms_norm(shape: ModelShape) -> Subject:
    def make_op(rng: np.random.Generator, _: Extent) -> Apply:
        weight = rng.standard_normal(shape.hidden, np.float32)
        return lambda ops, x: ops.rms_norm(x, weight, _EPS)

    return Subject("rms_norm", _repeated((shape.hidden,), make_op), f"width {shape.hidden}")


def rope(shape: ModelShape) -> Subject:
    def make_op(_: np.random.Generator, extent: Extent) -> Apply:
        table = rope_table(shape.rotary_dim, extent.context)
        return lambda ops, x: ops.rope(x, shape.head_dim, table)

    width = shape.heads * shape.head_dim
    return Subject("rope", _repeated((width,), make_op), f"{shape.heads} heads of {shape.head_dim}")


def act_mul(shape: ModelShape, activation: str) -> Subject:
    def make_op(*_: object) -> Apply:
        return lambda ops, gate, up: ops.act_mul(gate, up, activation)

    width = shape.intermediate
    return Subject("act_mul", _repeated((width, width), make_op), f"{activation} width {width}")


def add(width: int) -> Subject:
    return Subject("add", _repeated((width, width), lambda *_: lambda ops, x, y: ops.add(x, y)), f"width {width}")


def scale(width: int) -> Subject:
    return Subject("scale", _repeated((width,), lambda *_: lambda ops, x: ops.scale(x, 0.5)), f"width {width}")


def softcap(width: int) -> Subject:
    return Subject("softcap", _repeated((width,), lambda *_: lambda ops, x: ops.softcap(x, 2.0)), f"width {width}")


def rows(width: int) -> Subject:
    def make(rng: np.random.Generator, extent: Extent) -> Record:
        x = f32_tensor(random_floats(rng, extent.rows, width))

        def record(ops: Ops[Any], copies: int) -> None:
            value = ops.embed(x)
            out = ops.rows(value)
            for _ in range(copies):
                out = ops.rows(value)
            ops.logits(out)

        return record

    return Subject("rows", make, f"width {width}", all_rows=True)


def logits(vocab: int, variant: str) -> Subject:
    """Sampling and log-probabilities of rows that are there already."""

    def make(rng: np.random.Generator, extent: Extent) -> Record:
        x = f32_tensor(4 * random_floats(rng, extent.rows, vocab))
        unused = f32_tensor(np.zeros((extent.rows, 1), np.float32))

        def record(ops: Ops[Any], copies: int) -> None:
            out = ops.rows(ops.embed(x))
            ops.logits(out if copies else ops.rows(ops.embed(unused)))

        return record

    return Subject("logits", make, f"{variant}, {vocab} wide", all_rows=True, samples=True)


def kv_write(shape: ModelShape, dtype: str) -> Subject:
    width = shape.kv_heads * shape.head_dim

    def make(rng: np.random.Generator, extent: Extent) -> Record:
        k, v = (f32_tensor(random_floats(rng, extent.rows, width)) for _ in range(2))

        def record(ops: Ops[Any], copies: int) -> None:
            key, value = ops.embed(k), ops.embed(v)
            for layer in range(copies):
                ops.kv_write(layer, key, value)
            ops.logits(ops.rows(key))

        return record

    def observe(rng: np.random.Generator, extent: Extent) -> Record:
        k, v = (f32_tensor(random_floats(rng, extent.rows, width)) for _ in range(2))

        def record(ops: Ops[Any], copies: int) -> None:
            key = ops.embed(k)
            ops.kv_write(copies - 1, key, ops.embed(v))
            ops.logits(ops.rows(ops.attention(key, copies - 1, 1.0)))

        return record

    return Subject("kv_write", make, f"width {width}", dtype, observe=observe, has_cache=True, writes=True)


def attention(shape: ModelShape, dtype: str) -> Subject:
    q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    scale = shape.head_dim**-0.5

    def make(rng: np.random.Generator, extent: Extent) -> Record:
        q, k, v = (f32_tensor(random_floats(rng, extent.rows, width)) for width in (q_width, kv_width, kv_width))

        def record(ops: Ops[Any], copies: int) -> None:
            out, key, value = ops.embed(q), ops.embed(k), ops.embed(v)
            query = out
            for layer in range(extent.layers):  # only the steps that fill the cache write anything
                ops.kv_write(layer, key, value)
            for layer in range(copies):
                out = ops.attention(query, layer, scale)
            ops.logits(ops.rows(out))

        return record

    variant = f"{shape.heads}/{shape.kv_heads} heads of {shape.head_dim}"
    return Subject("attention", make, variant, dtype, has_cache=True)
