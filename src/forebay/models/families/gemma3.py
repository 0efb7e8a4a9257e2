"""Gemma 3 text: norms on both sides, scaled embeddings, local layers with a window and a rope base of their own."""

from __future__ import annotations

from forebay.errors import UnsupportedModelError
from forebay.models.decoder_spec import DecoderSpec, LayerSpec, RopeSpec
from forebay.models.decoder_weights import Naming
from forebay.models.families.family import (
    GGUF_NAMES,
    HF_NAMES,
    HF_SANDWICH,
    Family,
    activation,
    gguf_rope,
    gguf_spec,
    hf_rope,
    hf_spec,
    hf_windows,
)
from forebay.models.fields import Fields
from forebay.weights.checkpoint import Checkpoint

_PATTERN = 6  # every sixth layer is global
_LOCAL_BASE = 10000.0
_LAYERS_27B = 62  # the one size whose attention scale is not head_dim ** -0.5; GGUF does not store it


def _layers(windows: list[int | None], local: RopeSpec, whole: RopeSpec) -> tuple[LayerSpec, ...]:
    return tuple(LayerSpec(whole if window is None else local, window) for window in windows)


def _by_pattern(count: int, window: int, pattern: int) -> list[int | None]:
    return [None if (i + 1) % pattern == 0 else window for i in range(count)]


def _from_hf(fields: Fields) -> DecoderSpec:
    for cap in ("attn_logit_softcapping", "use_bidirectional_attention"):
        if fields.values.get(cap):
            raise UnsupportedModelError(f"{fields.origin}: {cap} is not supported")
    window, head_dim = fields.size("sliding_window", 4096), fields.size("head_dim", 256)
    if fields.has("layer_types"):
        windows = hf_windows(fields, window)
    else:
        pattern = fields.size("sliding_window_pattern", fields.size("_sliding_window_pattern", _PATTERN))
        windows = _by_pattern(fields.layers("num_hidden_layers"), window, pattern)
    parameters = fields.table("rope_parameters")
    if parameters is not None and parameters.has("full_attention"):
        whole = hf_rope(fields, head_dim, table=parameters.table("full_attention"))
        local = hf_rope(fields, head_dim, table=parameters.table("sliding_attention"))
    else:
        whole = hf_rope(fields, head_dim, base=fields.number("rope_theta", 1e6))
        local = RopeSpec(fields.number("rope_local_base_freq", _LOCAL_BASE), head_dim)
    return hf_spec(
        "gemma3",
        fields,
        layers=_layers(windows, local, whole),
        head_dim=head_dim,
        norms="sandwich",
        qk_norm="head",
        activation=activation(fields, "hidden_activation"),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        attention_scale=fields.positive("query_pre_attn_scalar", 256.0) ** -0.5,
        embed_scale=fields.size("hidden_size") ** 0.5,
        final_softcap=fields.number("final_logit_softcapping", 0.0),
    )


def _from_gguf(fields: Fields, checkpoint: Checkpoint) -> DecoderSpec:
    head_dim = fields.size("attention.key_length", 256)
    windows = _by_pattern(fields.layers("block_count"), fields.size("attention.sliding_window"), _PATTERN)
    local = RopeSpec(_LOCAL_BASE, fields.size("rope.dimension_count", head_dim))
    layers = _layers(windows, local, gguf_rope(fields, checkpoint, head_dim))
    scaled_by = head_dim
    if len(layers) == _LAYERS_27B:
        scaled_by = fields.size("embedding_length") // fields.size("attention.head_count")
    return gguf_spec(
        "gemma3",
        fields,
        checkpoint,
        layers=layers,
        head_dim=head_dim,
        norms="sandwich",
        qk_norm="head",
        activation="gelu_tanh",
        embed_scale=fields.size("embedding_length") ** 0.5,
        attention_scale=scaled_by**-0.5,
    )


GEMMA3 = Family(
    "gemma3",
    ("Gemma3ForCausalLM",),
    ("gemma3",),
    _from_hf,
    _from_gguf,
    hf=Naming(HF_NAMES | HF_SANDWICH, norm_offset=1.0),
    gguf=Naming(GGUF_NAMES),
)
