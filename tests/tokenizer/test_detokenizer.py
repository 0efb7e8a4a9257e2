"""Text comes out the same however its tokens arrive, and never half a character."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.tokenizer import IncrementalDetokenizer, Tokenizer
from forebay.tokenizer.gguf import tokenizer_from_gguf
from forebay.tokenizer.pieces import Pieces, byte_alphabet, sentencepiece_pieces
from forebay.tokenizer.tokenizer import SpecialTokens
from tests.tokenizer.vocabularies import gguf_tokenizer, stories_tokenizer


def tiny_byte_level() -> Tokenizer:
    """256 byte tokens, a few merges and two special tokens: it needs no shared data."""
    tokens = [*byte_alphabet(), "\u0120a", "<|end|>", "<|\u00e9|>"]
    return tokenizer_from_gguf({
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 257 + [3, 4],
        "tokenizer.ggml.merges": ["\u0120 a"],
        "tokenizer.ggml.eos_token_id": 257,
    })  # fmt: skip


def tiny_sentencepiece(**metadata: Any) -> Tokenizer:
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, "\u2581", "a", "\u2581a", "\u2581\u2581"]
    return tokenizer_from_gguf({
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 4,
        **metadata,
    })  # fmt: skip


def tiny_metaspace() -> Tokenizer:
    texts = ["\u2581", "a", "\u2581a", "\u2581\u2581b", "<s>"]
    piece_of = sentencepiece_pieces(lambda i: texts[i] if 0 <= i < len(texts) else None)
    pieces = Pieces(piece_of, frozenset({4}), bare_first=True)
    return Tokenizer(lambda text: [], pieces, SpecialTokens(), vocab_size=5, templates={}, identity=[])


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": tiny_byte_level,
    "sentencepiece": tiny_sentencepiece,
    "metaspace": tiny_metaspace,
    "stories260K": stories_tokenizer,
    "llama-spm": lambda: gguf_tokenizer("llama-spm"),
    "phi-3": lambda: gguf_tokenizer("phi-3"),
    "gpt-2": lambda: gguf_tokenizer("gpt-2"),
    "falcon": lambda: gguf_tokenizer("falcon"),
}


def _is_half(text: str) -> bool:
    return any(0xD800 <= ord(char) < 0xE000 for char in text)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pushes_join_to_the_decoded_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    token_ids = st.one_of(st.integers(-1, min(tokenizer.vocab_size, 300)), st.integers(0, tokenizer.vocab_size + 5))

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.lists(token_ids, max_size=4), max_size=12), st.booleans())
    def holds(pushes: list[list[int]], skip: bool) -> None:
        detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip)
        parts = [detokenizer.push(ids) for ids in pushes]
        parts.append(detokenizer.finish())
        ids = [i for push in pushes for i in push]
        assert "".join(parts) == tokenizer.decode(ids, skip_special_tokens=skip)
        assert not any(map(_is_half, parts))
        assert detokenizer.finish() == ""

    holds()


@pytest.mark.parametrize("name", sorted(TOKENIZERS.keys() - {"metaspace", "falcon"}))  # no encoder; lacks some bytes
@given(text=st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_character_comes_out_whole(name: str, text: str) -> None:
    """Of text that is valid, every push is a piece of that text: no U+FFFD stands in for bytes still to come."""
    tokenizer = TOKENIZERS[name]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    seen = ""
    for token_id in ids:
        seen += detokenizer.push([token_id])
        assert text.startswith(seen)
    assert seen + detokenizer.finish() == text


def test_a_character_over_four_tokens() -> None:
    tokenizer = tiny_sentencepiece()
    ids = tokenizer.encode("a\U0001f999a", add_special_tokens=False)
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.push([i]) for i in ids] == ["a", "", "", "", "\U0001f999", "a"]


def test_an_unfinished_character_waits_for_finish() -> None:
    tokenizer = tiny_sentencepiece()
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert detokenizer.push([3 + 0xF0, 3 + 0x9F]) == ""
    assert detokenizer.finish() == "\ufffd"
    assert tokenizer.decode([3 + 0xF0, 3 + 0x9F]) == "\ufffd"


def test_special_tokens_are_shown_or_skipped() -> None:
    tokenizer = tiny_byte_level()
    ids = tokenizer.encode(" a<|end|>x<|\u00e9|>")
    assert ids[1] == 257
    assert tokenizer.decode(ids) == " ax<|\u00e9|>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == " a<|end|>x<|\u00e9|>"


def test_the_first_space_of_a_text_and_of_a_continuation() -> None:
    tokenizer = tiny_sentencepiece()
    word = tokenizer.encode("a", add_special_tokens=False)
    assert tokenizer.token_text(word[0]) == " a"
    assert tokenizer.decode([1, *word, *word]) == "a a"
    assert tokenizer.decode([1, *word], skip_special_tokens=False) == "<s> a"

    def first_text(prompt: list[int], skip: bool) -> str:
        return IncrementalDetokenizer(tokenizer, skip_special_tokens=skip, prompt_token_ids=prompt).push(word)

    assert first_text([], True) == first_text([1], True) == "a"
    assert first_text([1, *word], True) == first_text([1], False) == " a"


def test_no_space_is_taken_where_none_was_added() -> None:
    tokenizer = tiny_sentencepiece(**{"tokenizer.ggml.add_space_prefix": False})
    ids = tokenizer.encode(" a", add_special_tokens=False)
    assert tokenizer.decode(ids) == " a"


def test_metaspace_drops_the_marks_of_the_first_token_only() -> None:
    tokenizer = tiny_metaspace()
    assert tokenizer.decode([4, 3, 3]) == "b  b"
    assert tokenizer.decode([0, 0, 2]) == "  a"


def test_token_text_and_bytes() -> None:
    tokenizer = tiny_sentencepiece()
    assert tokenizer.token_text(3 + 0xE2) == "bytes:\\xe2"
    assert tokenizer.token_bytes(3 + 0xE2) == b"\xe2"
    assert tokenizer.token_text(1) == "<s>"
    assert tokenizer.token_bytes(10_000) == b""
