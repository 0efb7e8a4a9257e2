"""Tiny random models of every family, made by transformers, the independent implementation we compare with."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf

_SHAPE: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **values}}


CONFIGS: dict[str, Callable[[], hf.PreTrainedConfig]] = {
    "llama": lambda: hf.LlamaConfig(**_SHAPE),
    "llama-biased-tied": lambda: hf.LlamaConfig(**_SHAPE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama-head-dim": lambda: hf.LlamaConfig(**_SHAPE, head_dim=24),
    "llama-linear": lambda: hf.LlamaConfig(**_SHAPE, **_rope("linear", factor=4.0)),
    "llama-llama3": lambda: hf.LlamaConfig(
        **_SHAPE,
        **_rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
    ),
    "llama-yarn": lambda: hf.LlamaConfig(**_SHAPE, **_rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "llama-yarn-keys": lambda: hf.LlamaConfig(
        **_SHAPE,
        **_rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=64,
            beta_fast=8.0,
            beta_slow=2.0,
            attention_factor=1.25 * (1 + 0.1 * math.log(4.0)),
        ),
    ),
    "llama-dynamic": lambda: hf.LlamaConfig(
        **(_SHAPE | {"max_position_embeddings": 64}), **_rope("dynamic", factor=4.0)
    ),
    "mistral": lambda: hf.MistralConfig(**_SHAPE, head_dim=16, sliding_window=None),
    "mistral-window": lambda: hf.MistralConfig(**_SHAPE, head_dim=16, sliding_window=37),
    "qwen2": lambda: hf.Qwen2Config(**_SHAPE),
    "qwen2-window": lambda: hf.Qwen2Config(**_SHAPE, use_sliding_window=True, sliding_window=29, max_window_layers=1),
    "qwen3": lambda: hf.Qwen3Config(**_SHAPE, head_dim=32),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **(_SHAPE | {"num_hidden_layers": 7}), head_dim=32, sliding_window=33, query_pre_attn_scalar=24
    ),
    "gemma3-scaled-by-head": lambda: hf.Gemma3TextConfig(
        **(_SHAPE | {"num_hidden_layers": 7}), head_dim=32, sliding_window=33, query_pre_attn_scalar=32
    ),
    "phi3": lambda: hf.Phi3Config(**_SHAPE),
    "phi3-partial-window": lambda: hf.Phi3Config(
        **_SHAPE, sliding_window=41, **_rope("default", partial_rotary_factor=0.5)
    ),
    "olmo2": lambda: hf.Olmo2Config(**_SHAPE),
}


def save_tiny(name: str, folder: Path, seed: int = 0) -> hf.PreTrainedModel:
    """Make the model with random weights, biases and norms (float32), save it to `folder`, and return it."""
    torch.manual_seed(seed)
    config = CONFIGS[name]()
    config.initializer_range = 0.1
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1:  # biases start at 0 and norms at 1: an error in them would not show
                parameter.add_(torch.randn_like(parameter) * (0.3 if "norm" in parameter_name else 0.1))
    model.save_pretrained(folder)
    return model


def hf_hidden(model: hf.PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """last_hidden_state (tokens, hidden size)."""
    with torch.no_grad():
        return model.base_model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]


def hf_logits(model: hf.PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]
