"""One door to a checkpoint's tokenizer."""

from __future__ import annotations

from forebay.tokenizer.gguf import tokenizer_from_gguf
from forebay.tokenizer.hf import tokenizer_from_folder
from forebay.tokenizer.tokenizer import Tokenizer
from forebay.weights.checkpoint import Checkpoint


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer a checkpoint brings: from its GGUF metadata, or from tokenizer.json and its companions.

    UnsupportedModelError, ModelFormatError: what is missing or not known, and what to do.
    """
    return tokenizer_from_gguf(checkpoint.config) if checkpoint.kind == "gguf" else tokenizer_from_folder(checkpoint)
