"""Grammars of calls, compiled for two tokenizers, and texts that they make."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from forebay.core.grammar_spec import GrammarSpec
from forebay.structured.grammar import Matcher, mask_words
from forebay.structured.llguidance_backend import LLGuidanceBackend, LLGuidanceGrammar
from forebay.structured.tools.registry import FORMATS
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.pieces import Pieces
from forebay.tokenizer.tokenizer import SpecialTokens
from tests.tokenizer.vocabularies import gguf_tokenizer

MARKERS = sorted({marker for known in FORMATS.values() for marker in known.markers} | {"<think>", "</think>"})
_MARKER = re.compile("(" + "|".join(map(re.escape, MARKERS)) + ")")
_EOS = 256
_MARKER_IDS = {marker: 257 + i for i, marker in enumerate(MARKERS)}
_CLOSING = ('"', "}", "]", ")", ">", *MARKERS)


@cache
def marked_tokenizer() -> Tokenizer:
    """All bytes, and every marker as a special token, as most models have their own."""
    pieces = {i: bytes([i]) for i in range(256)} | {_EOS: b"</s>"}
    pieces |= {i: marker.encode() for marker, i in _MARKER_IDS.items()}

    def encode(text: str) -> list[int]:
        parts = _MARKER.split(text)
        return [i for part in parts for i in ([_MARKER_IDS[part]] if part in _MARKER_IDS else part.encode())]

    return Tokenizer(
        encode,
        Pieces(pieces.get, frozenset({_EOS, *_MARKER_IDS.values()})),
        SpecialTokens(eos_token_ids=frozenset({_EOS})),
        vocab_size=len(pieces),
        templates={},
        identity=[b"marked"],
    )


def tokenizer_named(name: str) -> Tokenizer:
    """ "marked", or the real vocabulary of that name, in which all markers here are plain text."""
    return marked_tokenizer() if name == "marked" else gguf_tokenizer(name)


@cache
def backend_named(name: str) -> LLGuidanceBackend:
    tokenizer = tokenizer_named(name)
    return LLGuidanceBackend(tokenizer, vocab_size=tokenizer.vocab_size)


def accepts(tokenizer: str, spec: GrammarSpec, text: str) -> tuple[bool, bool]:
    """(every token is allowed, the text may end there), token by token as the tokenizer has them."""
    matcher = backend_named(tokenizer).compile(spec).matcher()
    ids = tokenizer_named(tokenizer).encode(text, add_special_tokens=False)
    return all(matcher.accept(i) for i in ids), matcher.is_complete


@cache
def _closing(tokenizer: str) -> NDArray[np.bool_]:
    """Which tokens end something."""
    known = tokenizer_named(tokenizer)
    return np.array([known.token_text(i).startswith(_CLOSING) for i in range(known.vocab_size)])


def walk(
    tokenizer: str, grammar: LLGuidanceGrammar, rng: random.Random, begin: str = "", max_tokens: int = 400
) -> str | None:
    """A random text of the grammar by its masks alone, after `begin`; or None if it grows too long.

    What closes is chosen more often, so that most texts end.
    """
    known, matcher = tokenizer_named(tokenizer), grammar.matcher()
    closing = _closing(tokenizer)
    ids = known.encode(begin, add_special_tokens=False)
    assert all(matcher.accept(i) for i in ids), begin
    for _ in range(max_tokens):
        allowed = _allowed(matcher, known.vocab_size)
        if matcher.is_complete and rng.random() < 0.5:
            return known.decode(ids, skip_special_tokens=False)
        choices = np.flatnonzero(allowed & closing) if rng.random() < 0.4 else np.empty(0, int)
        if not len(choices):
            choices = np.flatnonzero(allowed)
        ids.append(int(choices[rng.randrange(len(choices))]))
        if ids[-1] in known.eos_token_ids:
            return known.decode(ids[:-1], skip_special_tokens=False)
        assert matcher.accept(ids[-1])
    return None


def _allowed(matcher: Matcher, vocab_size: int) -> NDArray[np.bool_]:
    row = np.empty(mask_words(vocab_size), np.uint32)
    matcher.fill_mask(row)
    return np.unpackbits(row.view(np.uint8), bitorder="little")[:vocab_size].astype(bool)
