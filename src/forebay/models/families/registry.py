"""Which family a checkpoint belongs to."""

from __future__ import annotations

from forebay.errors import UnsupportedModelError
from forebay.models.decoder_spec import DecoderSpec
from forebay.models.decoder_weights import DecoderWeights, Naming, WeightLoader
from forebay.models.families.family import Family
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


def spec_from(checkpoint: Checkpoint) -> DecoderSpec:
    """The DecoderSpec of a checkpoint; UnsupportedModelError names an architecture we do not know."""
    return _described(checkpoint)[0]


def load_decoder(checkpoint: Checkpoint) -> tuple[DecoderSpec, DecoderWeights]:
    """Spec and weights; ModelFormatError names a tensor that is missing or has the wrong shape."""
    spec, naming = _described(checkpoint)
    return spec, WeightLoader(checkpoint, spec, naming).load()


def _described(checkpoint: Checkpoint) -> tuple[DecoderSpec, Naming]:
    if checkpoint.kind == "gguf":
        architecture = str(checkpoint.config.get("general.architecture"))
        family = _find(_BY_GGUF_NAME, architecture, checkpoint)
        fields = Fields(checkpoint.config, str(checkpoint.path), f"{architecture}.")
        return _checked(family.spec_from_gguf(fields, checkpoint), checkpoint), family.gguf
    architectures = checkpoint.config.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else "missing"
    family = _find(_BY_HF_NAME, architecture, checkpoint)
    fields = Fields(checkpoint.config, f"{checkpoint.path}/config.json")
    return _checked(family.spec_from_hf(fields), checkpoint), family.hf


def _find(known: dict[str, Family], architecture: str, checkpoint: Checkpoint) -> Family:
    if architecture not in known:
        raise UnsupportedModelError(
            f"{checkpoint.path}: architecture {architecture[:60]!r} is not supported; known: {', '.join(sorted(known))}"
        )
    return known[architecture]


def _checked(spec: DecoderSpec, checkpoint: Checkpoint) -> DecoderSpec:
    """Refuse shapes the ops cannot run."""
    rotary = {layer.rope.rotary_dim for layer in spec.layers}
    rotary_fits = all(2 <= width <= spec.head_dim and width % 2 == 0 for width in rotary)
    if spec.num_heads % spec.num_kv_heads or spec.head_dim % 2 or not rotary_fits:
        raise UnsupportedModelError(
            f"{checkpoint.path}: {spec.num_heads} heads over {spec.num_kv_heads} KV heads of width {spec.head_dim} "
            f"(rotary {sorted(rotary)}) cannot be served; heads must divide evenly and widths be even"
        )
    return spec
