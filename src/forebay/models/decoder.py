"""The forward pass of every decoder-only family, written once against the op set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from forebay.models.decoder_spec import DecoderSpec, RopeSpec
from forebay.models.decoder_weights import DecoderWeights, LayerWeights, Linear
from forebay.models.rope import rope_table
from forebay.ops.protocol import Ops, RopeTable
from forebay.ops.tensor import F32Array

V = TypeVar("V")


class Decoder:
    """A model that can be recorded: `decoder(ops)` runs or records one forward pass."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, max_model_len: int) -> None:
        self._spec = spec
        self._weights = weights
        self._tables: dict[RopeSpec, RopeTable] = {
            rope: rope_table(rope, max_model_len) for rope in {layer.rope for layer in spec.layers}
        }

    def __call__(self, ops: Ops[V]) -> None:
        spec, weights = self._spec, self._weights
        ops.segment("embed")
        x = ops.embed(weights.embed)
        if spec.embed_scale != 1.0:
            x = ops.scale(x, spec.embed_scale)
        for index, layer in enumerate(weights.layers):
            ops.segment(f"layers.{index}.attention")
            x = self._residual(ops, x, layer.attn_norm, layer.post_attn_norm, self._attention(ops, layer, index))
            ops.segment(f"layers.{index}.mlp")
            x = self._residual(ops, x, layer.mlp_norm, layer.post_mlp_norm, self._mlp(ops, layer))
        ops.segment("head")
        x = ops.rms_norm(ops.rows(x), weights.norm, spec.norm_eps)
        ops.hidden(x)
        x = ops.linear(x, weights.head)
        ops.logits(ops.softcap(x, spec.final_softcap) if spec.final_softcap else x)

    def _residual(
        self, ops: Ops[V], x: V, before: F32Array | None, after: F32Array | None, block: Callable[[V], V]
    ) -> V:
        """x + after(block(before(x))), where either norm may be absent."""
        h = block(x if before is None else ops.rms_norm(x, before, self._spec.norm_eps))
        return ops.add(x, h if after is None else ops.rms_norm(h, after, self._spec.norm_eps))

    def _attention(self, ops: Ops[V], layer: LayerWeights, index: int) -> Callable[[V], V]:
        spec, table = self._spec, self._tables[self._spec.layers[index].rope]

        def block(h: V) -> V:
            q, k, v = _linear(ops, h, layer.q), _linear(ops, h, layer.k), _linear(ops, h, layer.v)
            if layer.q_norm is not None and layer.k_norm is not None:
                q, k = ops.rms_norm(q, layer.q_norm, spec.norm_eps), ops.rms_norm(k, layer.k_norm, spec.norm_eps)
            q, k = ops.rope(q, spec.head_dim, table), ops.rope(k, spec.head_dim, table)
            ops.kv_write(index, k, v)
            return _linear(ops, ops.attention(q, index, spec.scale), layer.o)

        return block

    def _mlp(self, ops: Ops[V], layer: LayerWeights) -> Callable[[V], V]:
        def block(h: V) -> V:
            gate, up = _linear(ops, h, layer.gate), _linear(ops, h, layer.up)
            return _linear(ops, ops.act_mul(gate, up, self._spec.activation), layer.down)

        return block


def _linear(ops: Ops[V], x: V, linear: Linear) -> V:
    return ops.linear(x, linear.weight, linear.bias)
