"""What a family is, and the parts families share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forebay.errors import UnsupportedModelError
from forebay.models.decoder_spec import DecoderSpec, LayerSpec, RopeSpec
from forebay.models.decoder_weights import Naming
from forebay.models.fields import Fields
from forebay.weights.checkpoint import Checkpoint

ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")
ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}

_HF_LAYER = "model.layers.{i}."
HF_NAMES = {
    "embed": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attn_norm": _HF_LAYER + "input_layernorm",
    "q": _HF_LAYER + "self_attn.q_proj",
    "k": _HF_LAYER + "self_attn.k_proj",
    "v": _HF_LAYER + "self_attn.v_proj",
    "o": _HF_LAYER + "self_attn.o_proj",
    "q_norm": _HF_LAYER + "self_attn.q_norm",
    "k_norm": _HF_LAYER + "self_attn.k_norm",
    "mlp_norm": _HF_LAYER + "post_attention_layernorm",
    "gate": _HF_LAYER + "mlp.gate_proj",
    "up": _HF_LAYER + "mlp.up_proj",
    "down": _HF_LAYER + "mlp.down_proj",
}
HF_SANDWICH = {
    "post_attn_norm": _HF_LAYER + "post_attention_layernorm",
    "mlp_norm": _HF_LAYER + "pre_feedforward_layernorm",
    "post_mlp_norm": _HF_LAYER + "post_feedforward_layernorm",
}

GGUF_NAMES = {
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attn_norm": "blk.{i}.attn_norm",
    "q": "blk.{i}.attn_q",
    "k": "blk.{i}.attn_k",
    "v": "blk.{i}.attn_v",
    "o": "blk.{i}.attn_output",
    "q_norm": "blk.{i}.attn_q_norm",
    "k_norm": "blk.{i}.attn_k_norm",
    "post_attn_norm": "blk.{i}.post_attention_norm",
    "mlp_norm": "blk.{i}.ffn_norm",
    "gate": "blk.{i}.ffn_gate",
    "up": "blk.{i}.ffn_up",
    "down": "blk.{i}.ffn_down",
    "post_mlp_norm": "blk.{i}.post_ffw_norm",
}


HF_NAMING = Naming(HF_NAMES)
GGUF_NAMING = Naming(GGUF_NAMES)


@dataclass(frozen=True, slots=True)
class Family:
    """A decoder-only family as data.

    architectures: names in config.json "architectures"; gguf_architectures: values of general.architecture.
    """

    name: str
    architectures: tuple[str, ...]
    gguf_architectures: tuple[str, ...]
    spec_from_hf: Callable[[Fields], DecoderSpec]
    spec_from_gguf: Callable[[Fields, Checkpoint], DecoderSpec]
    hf: Naming = HF_NAMING
    gguf: Naming = GGUF_NAMING


def refuse(fields: Fields, *names: str, why: str, neutral: float = 0) -> None:
    """UnsupportedModelError for a field that no family reads and that says something else than `neutral`."""
    for name in names:
        value = fields.values.get(fields.prefix + name, neutral)
        if value is not None and value != neutral:
            raise UnsupportedModelError(f"{fields.origin}: {fields.prefix}{name} is {value!r:.40}: {why}")


def without(names: dict[str, str], *dropped: str) -> dict[str, str]:
    return {name: pattern for name, pattern in names.items() if name not in dropped}


def hf_spec(family: str, fields: Fields, **different: Any) -> DecoderSpec:
    """The spec of a llama-like config.json; `different` replaces what the family does in its own way."""
    if fields.has("quantization_config"):
        raise UnsupportedModelError(
            f"{fields.origin}: quantization_config is set; quantized safetensors are not supported, "
            "use the float checkpoint or a GGUF"
        )
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    values: dict[str, Any] = {
        "family": family,
        "vocab_size": fields.size("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": fields.size("intermediate_size"),
        "num_heads": heads,
        "num_kv_heads": fields.size("num_key_value_heads", heads),
        "head_dim": fields.size("head_dim", max(1, hidden // heads)),
        "norm_eps": fields.number("rms_norm_eps", 1e-6),
        "max_position": fields.size("max_position_embeddings", 2048),
        "activation": activation(fields, "hidden_act"),
        "qkv_bias": fields.flag("attention_bias"),
        "o_bias": fields.flag("attention_bias"),
        "tied_embeddings": fields.flag("tie_word_embeddings"),
    }
    values.update(different)
    if "layers" not in values:
        rope = hf_rope(fields, values["head_dim"])
        values["layers"] = (LayerSpec(rope),) * fields.layers("num_hidden_layers")
    return DecoderSpec(**values)


def activation(fields: Fields, name: str) -> str:
    value = fields.text(name, "silu")
    if value not in ACTIVATIONS:
        raise UnsupportedModelError(
            f"{fields.origin}: {name} {value!r} is not supported; known: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[value]


def hf_rope(fields: Fields, head_dim: int, *, table: Fields | None = None, base: float | None = None) -> RopeSpec:
    """Rope of a config: `rope_parameters` (new), or `rope_theta` with `rope_scaling` (old)."""
    scaling = table or fields.table("rope_parameters") or fields.table("rope_scaling") or Fields({}, fields.origin)
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind not in ROPE_KINDS:
        raise UnsupportedModelError(
            f"{fields.origin}: rope type {kind!r} is not supported; known: {', '.join(ROPE_KINDS)}"
        )
    theta = base if base is not None else scaling.number("rope_theta", fields.number("rope_theta", 10000.0))
    partial = scaling.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    original = scaling.size("original_max_position_embeddings", fields.size("max_position_embeddings", 2048))
    return RopeSpec(
        base=theta,
        rotary_dim=int(head_dim * partial),
        kind=kind,
        factor=scaling.number("factor", 1.0),
        original_max_position=original,
        low_freq_factor=scaling.number("low_freq_factor", 1.0),
        high_freq_factor=scaling.number("high_freq_factor", 4.0),
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        attention_factor=scaling.number("attention_factor") if scaling.has("attention_factor") else None,
        truncate=scaling.flag("truncate", True),
    )


def hf_windows(fields: Fields, window: int | None) -> list[int | None]:
    """Window of each layer, from `layer_types` where given, else the same for all."""
    count = fields.layers("num_hidden_layers")
    kinds = fields.texts("layer_types")
    if kinds is None:
        return [window] * count
    known = {"sliding_attention": window, "full_attention": None}
    if len(kinds) != count or any(kind not in known for kind in kinds):
        raise UnsupportedModelError(f"{fields.origin}: layer_types must name {count} of {', '.join(known)}")
    return [known[kind] for kind in kinds]


def gguf_spec(family: str, fields: Fields, checkpoint: Checkpoint, **different: Any) -> DecoderSpec:
    """The spec of a llama-like GGUF; biases and tied embeddings are seen from the tensors themselves."""
    names = set(checkpoint.tensor_names())
    hidden, heads = fields.size("embedding_length"), fields.size("attention.head_count")
    head_dim = fields.size("attention.key_length", max(1, hidden // heads))
    if fields.size("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModelError(f"{fields.origin}: value heads of another width than key heads are not supported")
    values: dict[str, Any] = {
        "family": family,
        "vocab_size": checkpoint.tensor("token_embd.weight").rows,
        "hidden_size": hidden,
        "intermediate_size": fields.size("feed_forward_length"),
        "num_heads": heads,
        "num_kv_heads": fields.size("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "norm_eps": fields.number("attention.layer_norm_rms_epsilon"),
        "max_position": fields.size("context_length"),
        "qkv_bias": "blk.0.attn_q.bias" in names or "blk.0.attn_qkv.bias" in names,
        "o_bias": "blk.0.attn_output.bias" in names,
        "mlp_bias": "blk.0.ffn_down.bias" in names,
        "tied_embeddings": "output.weight" not in names,
    }
    values.update(different)
    if "layers" not in values:
        window = fields.size("attention.sliding_window") if fields.has("attention.sliding_window") else None
        rope = gguf_rope(fields, checkpoint, head_dim)
        values["layers"] = (LayerSpec(rope, window),) * fields.layers("block_count")
    return DecoderSpec(**values)


def gguf_rope(fields: Fields, checkpoint: Checkpoint, head_dim: int) -> RopeSpec:
    """Rope of a GGUF; `rope_freqs.weight` (Llama 3) divides the inverse frequencies."""
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in checkpoint.tensor_names():
            raise UnsupportedModelError(f"{fields.origin}: {name} (longrope) is not supported; use a model without it")
    kind = fields.text("rope.scaling.type", "none")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModelError(
            f"{fields.origin}: rope scaling {kind!r} is not supported; known: none, linear, yarn"
        )
    other = "this form of YaRN is not supported; use a model without it"
    refuse(fields, "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", why=other, neutral=1)
    refuse(fields, "rope.scaling.yarn_log_multiplier", why=other)
    factor = fields.number("rope.scaling.factor", 1.0)
    attention_factor = fields.number("rope.scaling.attn_factor", 1.0)
    if kind == "yarn":  # llama.cpp: what the file gives is on top of YaRN's own
        attention_factor *= 1.0 + 0.1 * math.log(max(factor, 1.0))
    elif attention_factor != 1.0:
        raise UnsupportedModelError(f"{fields.origin}: rope.scaling.attn_factor without yarn is not supported")
    factors = None
    if "rope_freqs.weight" in checkpoint.tensor_names():
        factors = tuple(checkpoint.tensor("rope_freqs.weight").vector().tolist())
    rotary_dim = fields.size("rope.dimension_count", head_dim)
    if factors is not None and len(factors) != rotary_dim // 2:
        raise UnsupportedModelError(
            f"{fields.origin}: rope_freqs.weight must have {rotary_dim // 2} values, has {len(factors)}"
        )
    return RopeSpec(
        base=fields.number("rope.freq_base", 10000.0),
        rotary_dim=rotary_dim,
        kind="default" if kind == "none" else kind,
        factor=factor,
        original_max_position=fields.size("rope.scaling.original_context_length", fields.size("context_length")),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=attention_factor,
        frequency_factors=factors,
    )
