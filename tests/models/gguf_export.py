"""Writes a tiny transformers model as a GGUF, with the names and conventions of the `gguf` package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
import transformers as hf


def _neighbour_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """Order rows of Q or K for rotation of neighbours, as files of the llama architecture have them."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def export_gguf(
    model: hf.PreTrainedModel,
    architecture: str,
    path: Path,
    dtype: str = "f32",
    extra: Mapping[str, np.ndarray] = MappingProxyType({}),
    metadata: Mapping[str, str | float] = MappingProxyType({}),
) -> None:
    """dtype: "f32", or a quantized type name of the package for the matrices whose rows divide into its blocks.
    extra: further tensors by their GGUF names. metadata: further keys below the architecture's; text, int or float."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    rope = config.rope_parameters
    whole = rope.get("full_attention", rope)
    writer.add_rope_freq_base(whole["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * whole.get("partial_rotary_factor", 1.0)))
    for key, value in metadata.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(f"{architecture}.{key}", value)
    _add_tensors(writer, model, architecture, dtype)
    for name, tensor in extra.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensors(writer: gguf.GGUFWriter, model: hf.PreTrainedModel, architecture: str, dtype: str) -> None:
    config = model.config
    arch = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        value = parameter.detach().numpy()
        if architecture == "llama" and ".q_proj." in name:
            value = _neighbour_pairs(value, config.num_attention_heads)
        if architecture == "llama" and ".k_proj." in name:
            value = _neighbour_pairs(value, config.num_key_value_heads)
        if architecture == "gemma3" and "norm" in name:
            value = value + np.float32(1)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored, name
        if dtype != "f32" and value.ndim == 2:
            kind = gguf.GGMLQuantizationType[dtype.upper()]
            writer.add_tensor(stored, gguf.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(stored, value)
