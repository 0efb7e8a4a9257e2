"""Llama and what shares its shape: Llama 2/3, SmolLM2, TinyStories, Mistral (with a sliding window)."""

from __future__ import annotations

from forebay.models.decoder_spec import DecoderSpec, LayerSpec
from forebay.models.decoder_weights import Naming
from forebay.models.families.family import GGUF_NAMES, Family, gguf_spec, hf_rope, hf_spec, hf_windows
from forebay.models.fields import Fields
from forebay.weights.checkpoint import Checkpoint


def _llama_from_hf(fields: Fields) -> DecoderSpec:
    return hf_spec("llama", fields, mlp_bias=fields.flag("mlp_bias"))


def _mistral_from_hf(fields: Fields) -> DecoderSpec:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    rope = hf_rope(fields, fields.size("head_dim", hidden // heads))
    window = fields.size("sliding_window") if fields.has("sliding_window") else None
    layers = tuple(LayerSpec(rope, layer_window) for layer_window in hf_windows(fields, window))
    return hf_spec("mistral", fields, layers=layers)


def _llama_from_gguf(fields: Fields, checkpoint: Checkpoint) -> DecoderSpec:
    return gguf_spec("llama", fields, checkpoint)


# GGUF conversion reorders Q and K of this architecture for neighbour-pair rotation.
LLAMA = Family(
    "llama",
    ("LlamaForCausalLM",),
    ("llama",),
    _llama_from_hf,
    _llama_from_gguf,
    gguf=Naming(GGUF_NAMES, interleaved_rope=True),
)
MISTRAL = Family("mistral", ("MistralForCausalLM",), (), _mistral_from_hf, _llama_from_gguf)
