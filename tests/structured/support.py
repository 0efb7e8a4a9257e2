"""A small vocabulary, grammars over it, and what they accept."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.structured.grammar import Matcher, mask_words
from forebay.structured.llguidance_backend import LLGuidanceBackend, LLGuidanceGrammar
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.pieces import Pieces
from forebay.tokenizer.tokenizer import SpecialTokens

WORDS = (
    '":',
    '","',
    '":"',
    '"}',
    '{"',
    "}}",
    "true",
    "false",
    "null",
    "name",
    "na",
    "order",
    "orderId",
    "  ",
    ", ",
    "\n",
)
EOS, TURN, CALL = 256 + len(WORDS), 257 + len(WORDS), 258 + len(WORDS)  # ids of </s>, <|turn|> and <|call|>
VOCAB_SIZE = CALL + 1
ROWS = 300  # of the output layer: more than there are tokens
SPECIAL = {EOS: b"</s>", TURN: b"<|turn|>", CALL: b"<|call|>"}
PIECES = {**{i: bytes([i]) for i in range(256)}, **{256 + i: w.encode() for i, w in enumerate(WORDS)}, **SPECIAL}


def encode(text: str) -> list[int]:
    """The longest piece each time, special tokens written out in the text among them."""
    ids: list[int] = []
    data, by_length = text.encode(), sorted(PIECES, key=lambda i: -len(PIECES[i]))
    while data:
        ids.append(next(i for i in by_length if data.startswith(PIECES[i])))
        data = data[len(PIECES[ids[-1]]) :]
    return ids


@cache
def tiny_tokenizer() -> Tokenizer:
    """Every byte, a few words, three special tokens, two of which end an output."""
    return Tokenizer(
        encode,
        Pieces(PIECES.get, frozenset(SPECIAL)),
        SpecialTokens(eos_token_ids=frozenset({EOS, TURN})),
        vocab_size=VOCAB_SIZE,
        templates={},
        identity=[b"tiny"],
    )


@cache
def tiny_backend() -> LLGuidanceBackend:
    return LLGuidanceBackend(tiny_tokenizer(), vocab_size=ROWS)


def spec(kind: str, source: Any = "", **fields: Any) -> GrammarSpec:
    """source: text, or a value to be written as JSON."""
    text = source if isinstance(source, str) else json.dumps(source, ensure_ascii=False)
    return GrammarSpec(kind=GrammarKind(kind), source=text, **fields)


def schema_spec(schema: Any, **fields: Any) -> GrammarSpec:
    return spec("json_schema", json.dumps(schema, ensure_ascii=False), **fields)


def compiled(kind: str, source: Any = "", **fields: Any) -> LLGuidanceGrammar:
    return tiny_backend().compile(spec(kind, source, **fields))


def compiled_schema(schema: Any) -> LLGuidanceGrammar:
    return tiny_backend().compile(schema_spec(schema))


def accepts(grammar: LLGuidanceGrammar, text: str | bytes) -> bool:
    """Whether this is a whole output, byte by byte."""
    matcher = grammar.matcher()
    data = text.encode() if isinstance(text, str) else text
    return all(matcher.accept(byte) for byte in data) and matcher.is_complete


def allowed(matcher: Matcher, rows: int = ROWS) -> set[int]:
    """The ids of the mask."""
    row = np.full(mask_words(rows), 0xFFFFFFFF, np.uint32)
    matcher.fill_mask(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def feed(matcher: Matcher, ids: Iterable[int]) -> None:
    for i in ids:
        assert matcher.accept(i), (i, PIECES.get(i))


def generate(matcher: Matcher, rng: random.Random, max_tokens: int = 300) -> bytes | None:
    """A random output by masks alone, inclined to end; None if it did not within so many tokens."""
    enders = {ord(c) for c in '"}],'} | {256 + WORDS.index(w) for w in ('"}', "}}", '","')}
    data = b""
    for _ in range(max_tokens):
        ids = allowed(matcher)
        ends = ids & {EOS, TURN}
        assert bool(ends) == matcher.is_complete
        if ends and (len(ids) == len(ends) or rng.random() < 0.3):
            feed(matcher, [min(ends)])
            assert matcher.is_terminated
            return data
        choice = rng.choice(sorted((ids & enders) or ids) if rng.random() < 0.5 else sorted(ids - ends))
        feed(matcher, [choice])
        data += PIECES[choice]
    return None
