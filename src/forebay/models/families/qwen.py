"""Qwen2 and Qwen2.5 (biases on Q, K, V) and Qwen3 (norms on the heads of Q and K)."""

from __future__ import annotations

from forebay.models.decoder_spec import DecoderSpec, LayerSpec
from forebay.models.families.family import Family, gguf_spec, hf_rope, hf_spec, hf_windows
from forebay.models.fields import Fields
from forebay.weights.checkpoint import Checkpoint


def _layers(fields: Fields) -> tuple[LayerSpec, ...]:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    rope = hf_rope(fields, fields.size("head_dim", hidden // heads))
    count = fields.layers("num_hidden_layers")
    if not fields.flag("use_sliding_window"):
        return (LayerSpec(rope),) * count
    window = fields.size("sliding_window")
    if fields.has("layer_types"):
        return tuple(LayerSpec(rope, layer_window) for layer_window in hf_windows(fields, window))
    first = fields.size("max_window_layers", count)  # windows begin at this layer
    return tuple(LayerSpec(rope, window if i >= first else None) for i in range(count))


def _qwen2_from_hf(fields: Fields) -> DecoderSpec:
    return hf_spec("qwen2", fields, layers=_layers(fields), qkv_bias=True, o_bias=False)


def _qwen3_from_hf(fields: Fields) -> DecoderSpec:
    return hf_spec("qwen3", fields, layers=_layers(fields), head_dim=fields.size("head_dim", 128), qk_norm="head")


def _qwen2_from_gguf(fields: Fields, checkpoint: Checkpoint) -> DecoderSpec:
    return gguf_spec("qwen2", fields, checkpoint)


def _qwen3_from_gguf(fields: Fields, checkpoint: Checkpoint) -> DecoderSpec:
    return gguf_spec("qwen3", fields, checkpoint, qk_norm="head")


QWEN2 = Family("qwen2", ("Qwen2ForCausalLM",), ("qwen2",), _qwen2_from_hf, _qwen2_from_gguf)
QWEN3 = Family("qwen3", ("Qwen3ForCausalLM",), ("qwen3",), _qwen3_from_hf, _qwen3_from_gguf)
