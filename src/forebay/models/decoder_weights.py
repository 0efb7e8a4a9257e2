"""The weights of a decoder under canonical names, whatever the checkpoint calls them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.errors import ModelFormatError
from forebay.models.decoder_spec import DecoderSpec
from forebay.ops.tensor import F32Array, Tensor
from forebay.weights.checkpoint import Checkpoint
from forebay.weights.conversion import Conversion, format_label, joined
from forebay.weights.mapped import drop_pages

LINEARS = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """weight (out features, in features) and bias (out features,)."""

    weight: Tensor
    bias: F32Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    gate: Linear
    up: Linear
    down: Linear
    attn_norm: F32Array | None = None
    post_attn_norm: F32Array | None = None
    mlp_norm: F32Array | None = None
    post_mlp_norm: F32Array | None = None
    q_norm: F32Array | None = None
    k_norm: F32Array | None = None

    def linears(self) -> dict[str, Linear]:
        return {name: getattr(self, name) for name in LINEARS}


@dataclass(frozen=True, slots=True, eq=False)
class DecoderWeights:
    embed: Tensor
    layers: tuple[LayerWeights, ...]
    norm: F32Array
    head: Tensor

    def matrices(self) -> Iterator[Tensor]:
        """Every matrix in the order of the forward pass; an embedding that is the head too comes twice."""
        yield self.embed
        for layer in self.layers:
            yield from (linear.weight for linear in layer.linears().values())
        yield self.head

    def format_name(self) -> str:
        """The formats of all matrices, most frequent first, marked where they are not the file's: part of the answer
        class."""
        return joined(Counter(map(format_label, self.matrices())))

    def num_bytes(self) -> int:
        """Of all matrices in their formats, known before any is made; norms and biases take next to nothing."""
        return sum(matrix.nbytes for matrix in {id(matrix): matrix for matrix in self.matrices()}.values())

    def converted(self, conversion: Conversion) -> DecoderWeights:
        """The same in the formats that a profile asks for. Norms and biases stay as they are."""
        embed = conversion.matrix(self.embed, outer=True)
        head = embed if self.head is self.embed else conversion.matrix(self.head, outer=True)
        layers = tuple(_converted(layer, conversion) for layer in self.layers)
        return replace(self, embed=embed, head=head, layers=layers)


def _converted(layer: LayerWeights, conversion: Conversion) -> LayerWeights:
    made: dict[str, Any] = {
        name: replace(linear, weight=conversion.matrix(linear.weight, outer=False))
        for name, linear in layer.linears().items()
    }
    return replace(layer, **made)


@dataclass(frozen=True, slots=True)
class Naming:
    """How a checkpoint kind names and lays out a family's weights.

    names: canonical name -> pattern with {i} for the layer ("qkv" / "gate_up" where they are one matrix).
    norm_offset: added to every norm weight (Gemma checkpoints store weight - 1).
    interleaved_rope: rows of Q and K are ordered for rotation of neighbours (2i, 2i + 1), not of halves.
    """

    names: Mapping[str, str]
    norm_offset: float = 0.0
    interleaved_rope: bool = False


_NORMS = {
    "pre": ("attn_norm", "mlp_norm"),
    "post": ("post_attn_norm", "post_mlp_norm"),
    "sandwich": ("attn_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm"),
}


class WeightLoader:
    """Reads one checkpoint's weights for a spec, checking every shape."""

    def __init__(self, checkpoint: Checkpoint, spec: DecoderSpec, naming: Naming) -> None:
        self._checkpoint = checkpoint
        self._spec = spec
        self._naming = naming

    def load(self) -> DecoderWeights:
        spec = self._spec
        embed = self._matrix("embed", spec.vocab_size, spec.hidden_size)
        head = embed if spec.tied_embeddings else self._matrix("head", spec.vocab_size, spec.hidden_size)
        layers = tuple(self._layer(i) for i in range(len(spec.layers)))
        return DecoderWeights(embed, layers, self._norm("norm", spec.hidden_size), head)

    def _layer(self, i: int) -> LayerWeights:
        spec, hidden = self._spec, self._spec.hidden_size
        q_rows, kv_rows = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        q, k, v = self._split("qkv", ("q", "k", "v"), (q_rows, kv_rows, kv_rows), i, spec.qkv_bias)
        gate, up = self._split("gate_up", ("gate", "up"), (spec.intermediate_size,) * 2, i, spec.mlp_bias)
        qk = {"none": (0, 0), "head": (spec.head_dim, spec.head_dim), "full": (q_rows, kv_rows)}[spec.qk_norm]
        return LayerWeights(
            q=self._half_split(q, spec.num_heads),
            k=self._half_split(k, spec.num_kv_heads),
            v=v,
            o=self._linear("o", hidden, q_rows, i, spec.o_bias),
            gate=gate,
            up=up,
            down=self._linear("down", hidden, spec.intermediate_size, i, spec.mlp_bias),
            q_norm=self._norm("q_norm", qk[0], i) if qk[0] else None,
            k_norm=self._norm("k_norm", qk[1], i) if qk[1] else None,
            **{name: self._norm(name, hidden, i) for name in _NORMS[spec.norms]},
        )

    def _split(self, fused: str, names: tuple[str, ...], rows: tuple[int, ...], i: int, bias: bool) -> list[Linear]:
        """Linears stored apart, or as one matrix with their rows one after the other."""
        hidden = self._spec.hidden_size
        if fused not in self._naming.names:
            return [self._linear(name, count, hidden, i, bias) for name, count in zip(names, rows, strict=True)]
        whole = self._linear(fused, sum(rows), hidden, i, bias)
        bounds = [0, *np.cumsum(rows).tolist()]
        return [_rows(whole, slice(start, stop)) for start, stop in pairwise(bounds)]

    def _half_split(self, linear: Linear, heads: int) -> Linear:
        if not self._naming.interleaved_rope:
            return linear
        index = np.arange(linear.weight.rows).reshape(heads, -1, 2).transpose(0, 2, 1).reshape(-1)
        ordered = _rows(linear, index)
        drop_pages(linear.weight.data)  # these are a copy
        return ordered

    def _linear(self, name: str, rows: int, columns: int, i: int, bias: bool) -> Linear:
        weight = self._matrix(name, rows, columns, i)
        return Linear(weight, self._vector(self._name(name, i, "bias"), rows) if bias else None)

    def _matrix(self, name: str, rows: int, columns: int, i: int = 0) -> Tensor:
        return self._checked(self._name(name, i), rows, columns)

    def _norm(self, name: str, width: int, i: int = 0) -> F32Array:
        return self._vector(self._name(name, i), width) + np.float32(self._naming.norm_offset)

    def _vector(self, stored: str, width: int) -> F32Array:
        return self._checked(stored, 1, width).vector()

    def _name(self, name: str, i: int, part: str = "weight") -> str:
        return f"{self._naming.names[name].format(i=i)}.{part}"

    def _checked(self, stored: str, rows: int, columns: int) -> Tensor:
        tensor = self._checkpoint.tensor(stored)
        if (tensor.rows, tensor.columns) != (rows, columns):
            raise ModelFormatError(
                f"{self._checkpoint.path}: {stored} has shape ({tensor.rows}, {tensor.columns}), "
                f"the configuration needs ({rows}, {columns})"
            )
        return tensor


def _rows(linear: Linear, index: np.ndarray | slice) -> Linear:
    return Linear(linear.weight.select_rows(index), None if linear.bias is None else linear.bias[index])
