"""OLMo 2: norms after attention and mlp only, and norms over the whole of Q and K."""

from __future__ import annotations

from forebay.models.decoder_spec import DecoderSpec
from forebay.models.decoder_weights import Naming
from forebay.models.families.family import HF_NAMES, HF_SANDWICH, Family, gguf_spec, hf_spec
from forebay.models.fields import Fields
from forebay.weights.checkpoint import Checkpoint


def _from_hf(fields: Fields) -> DecoderSpec:
    return hf_spec("olmo2", fields, norms="post", qk_norm="full")


def _from_gguf(fields: Fields, checkpoint: Checkpoint) -> DecoderSpec:
    return gguf_spec("olmo2", fields, checkpoint, norms="post", qk_norm="full")


OLMO2 = Family("olmo2", ("Olmo2ForCausalLM",), ("olmo2",), _from_hf, _from_gguf, hf=Naming(HF_NAMES | HF_SANDWICH))
