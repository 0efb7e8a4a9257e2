"""Which family a checkpoint belongs to."""

from __future__ import annotations

import math

from forebay.errors import UnsupportedModelError
from forebay.models.decoder_spec import DecoderSpec, RopeSpec
from forebay.models.decoder_weights import DecoderWeights, Naming, WeightLoader
from forebay.models.families.family import Family, refuse
from forebay.models.families.gemma3 import GEMMA3
from forebay.models.families.llama import LLAMA, MISTRAL
from forebay.models.families.olmo2 import OLMO2
from forebay.models.families.phi3 import PHI3
from forebay.models.families.qwen import QWEN2, QWEN3
from forebay.models.fields import Fields
from forebay.weights.checkpoint import Checkpoint

FAMILIES: tuple[Family, ...] = (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3, PHI3, OLMO2)
_BY_HF_NAME = {name: family for family in FAMILIES for name in family.architectures}
_BY_GGUF_NAME = {name: family for family in FAMILIES for name in family.gguf_architectures}
_EXPERTS = ("expert_count", "num_experts", "num_local_experts", "n_routed_experts")  # the first in a GGUF
_NO_EXPERTS = "experts are not supported; use a dense model"


def load_decoder(checkpoint: Checkpoint) -> tuple[DecoderSpec, DecoderWeights]:
    """Spec and weights. UnsupportedModelError names what cannot be served, ModelFormatError a tensor that is missing or
    has the wrong shape."""
    spec, naming = _described(checkpoint)
    return spec, WeightLoader(checkpoint, spec, naming).load()


def _described(checkpoint: Checkpoint) -> tuple[DecoderSpec, Naming]:
    if checkpoint.kind == "gguf":
        architecture = str(checkpoint.config.get("general.architecture"))
        family = _find(_BY_GGUF_NAME, architecture, checkpoint)
        fields = Fields(checkpoint.config, str(checkpoint.path), f"{architecture}.")
        refuse(fields, *_EXPERTS, why=_NO_EXPERTS)
        return _checked(family.spec_from_gguf(fields, checkpoint), family.gguf, checkpoint), family.gguf
    architectures = checkpoint.config.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else "missing"
    family = _find(_BY_HF_NAME, architecture, checkpoint)
    fields = Fields(checkpoint.config, f"{checkpoint.path}/config.json")
    refuse(fields, *_EXPERTS, why=_NO_EXPERTS)
    return _checked(family.spec_from_hf(fields), family.hf, checkpoint), family.hf


def _find(known: dict[str, Family], architecture: str, checkpoint: Checkpoint) -> Family:
    if architecture not in known:
        raise UnsupportedModelError(
            f"{checkpoint.path}: architecture {architecture[:60]!r} is not supported; known: {', '.join(sorted(known))}"
        )
    return known[architecture]


def _checked(spec: DecoderSpec, naming: Naming, checkpoint: Checkpoint) -> DecoderSpec:
    """Refuse shapes the ops cannot run, and numbers without a finite result."""
    rotary = {layer.rope.rotary_dim for layer in spec.layers}
    rotary_fits = all(2 <= width <= spec.head_dim and width % 2 == 0 for width in rotary)
    if spec.num_heads % spec.num_kv_heads or spec.head_dim % 2 or not rotary_fits:
        raise UnsupportedModelError(
            f"{checkpoint.path}: {spec.num_heads} heads over {spec.num_kv_heads} KV heads of width {spec.head_dim} "
            f"(rotary {sorted(rotary)}) cannot be served; heads must divide evenly and widths be even"
        )
    if naming.interleaved_rope and rotary != {spec.head_dim}:
        raise UnsupportedModelError(
            f"{checkpoint.path}: heads of {spec.head_dim} that rotate only {sorted(rotary)} are not supported in this "
            "architecture's row order; use the safetensors checkpoint"
        )
    if spec.norm_eps < 0:
        raise UnsupportedModelError(
            f"{checkpoint.path}: the epsilon of norms must not be negative, got {spec.norm_eps}"
        )
    for rope in {layer.rope for layer in spec.layers}:
        problem = _rope_problem(rope)
        if problem is not None:
            raise UnsupportedModelError(f"{checkpoint.path}: {rope.kind} rope cannot be served: {problem}")
    return spec


def _rope_problem(rope: RopeSpec) -> str | None:
    """Why the formulas of models/rope.py have no finite value for these numbers."""
    if rope.base <= 1:
        return f"its base must be above 1, got {rope.base:g}"
    if rope.factor <= 0:
        return f"its factor must be above 0, got {rope.factor:g}"
    if rope.frequency_factors is not None and not all(0 < factor < math.inf for factor in rope.frequency_factors):
        return "its frequency factors must be above 0 and finite"
    if rope.kind == "llama3" and not rope.low_freq_factor < rope.high_freq_factor:
        return f"low_freq_factor {rope.low_freq_factor:g} must be below high_freq_factor {rope.high_freq_factor:g}"
    if rope.kind == "yarn" and min(rope.beta_fast, rope.beta_slow) <= 0:
        return f"beta_fast {rope.beta_fast:g} and beta_slow {rope.beta_slow:g} must be above 0"
    if rope.kind == "dynamic" and rope.rotary_dim <= 2:
        return f"it must rotate more than 2 dimensions, not {rope.rotary_dim}"
    return None
