"""The backends of grammars. There is one; importing it takes a tenth of a second, so it waits until it is wanted."""

from __future__ import annotations

from forebay.structured.grammar import GrammarBackend
from forebay.tokenizer import Tokenizer


def create_grammar_backend(tokenizer: Tokenizer, vocab_size: int) -> GrammarBackend:
    """vocab_size: rows of the output layer. UnsupportedModelError: the model's tokenizer cannot end an output."""
    from forebay.structured.llguidance_backend import LLGuidanceBackend

    return LLGuidanceBackend(tokenizer, vocab_size=vocab_size)
