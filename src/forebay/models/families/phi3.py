"""Phi-3: llama with Q, K, V in one matrix and gate, up in another; some rotate only part of a head."""

from __future__ import annotations

from forebay.models.decoder_spec import DecoderSpec, LayerSpec
from forebay.models.decoder_weights import Naming
from forebay.models.families.family import GGUF_NAMES, HF_NAMES, Family, gguf_spec, hf_rope, hf_spec, without
from forebay.models.fields import Fields
from forebay.weights.checkpoint import Checkpoint


def _from_hf(fields: Fields) -> DecoderSpec:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    window = fields.size("sliding_window") if fields.has("sliding_window") else None
    layer = LayerSpec(hf_rope(fields, hidden // heads), window)
    return hf_spec("phi3", fields, layers=(layer,) * fields.layers("num_hidden_layers"))


def _from_gguf(fields: Fields, checkpoint: Checkpoint) -> DecoderSpec:
    return gguf_spec("phi3", fields, checkpoint)


_SPLIT = ("q", "k", "v", "gate", "up")
PHI3 = Family(
    "phi3",
    ("Phi3ForCausalLM",),
    ("phi3",),
    _from_hf,
    _from_gguf,
    hf=Naming(
        without(HF_NAMES, *_SPLIT)
        | {"qkv": "model.layers.{i}.self_attn.qkv_proj", "gate_up": "model.layers.{i}.mlp.gate_up_proj"}
    ),
    gguf=Naming(without(GGUF_NAMES, *_SPLIT) | {"qkv": "blk.{i}.attn_qkv", "gate_up": "blk.{i}.ffn_up"}),
)
