"""A decoder-only family as data. Families turn a config into this; `decoder.py` is the only code that reads it."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.core.kv_spec import KVGroup, KVSpec


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding of one layer kind.

    kind: "default", "linear" (positions / factor), "dynamic" (NTK; base fixed at the served length), "llama3", "yarn".
    """

    base: float
    rotary_dim: int
    kind: str = "default"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float | None = None  # yarn; None = 0.1 ln(factor) + 1
    truncate: bool = True  # yarn: round the correction range to whole dimensions
    frequency_factors: tuple[float, ...] | None = None  # GGUF rope_freqs: divides each inverse frequency


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What may differ from layer to layer."""

    rope: RopeSpec
    window: int | None = None


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Everything the forward pass needs besides the weights.

    norms: "pre" (llama), "post" (olmo2: after attention and mlp, before the residual add), "sandwich" (gemma3: both).
    qk_norm: "none", "head" (per head, before rope), "full" (over all heads of a row, before rope).
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: tuple[LayerSpec, ...]
    norm_eps: float
    max_position: int
    norms: str = "pre"
    qk_norm: str = "none"
    activation: str = "silu"
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    attention_scale: float = 0.0  # 0 means head_dim ** -0.5
    embed_scale: float = 1.0
    tied_embeddings: bool = False
    final_softcap: float = 0.0

    @property
    def scale(self) -> float:
        return self.attention_scale or self.head_dim**-0.5

    def kv_spec(self, block_size: int, dtype: str) -> KVSpec:
        """One KV group per distinct window, in order of first layer."""
        windows = list(dict.fromkeys(layer.window for layer in self.layers))
        groups = tuple(
            KVGroup(
                layers=tuple(i for i, layer in enumerate(self.layers) if layer.window == window),
                num_kv_heads=self.num_kv_heads,
                head_dim=self.head_dim,
                dtype=dtype,
                window=window,
            )
            for window in windows
        )
        return KVSpec(groups=groups, block_size=block_size)
