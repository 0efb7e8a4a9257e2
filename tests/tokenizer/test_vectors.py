"""Ids equal llama.cpp's own test vectors (.inp/.out) and those made with Hugging Face's `tokenizers` (tok_golden)."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.tokenizer import Tokenizer
from tests.support.shared import shared_path
from tests.tokenizer.vocabularies import GGUF_NAMES, file_tokenizer, gguf_tokenizer, golden_ids

# Vectors that are known to differ: (vocabulary, index) -> reason. A listed one that passes fails the test. None are.
OUT_OF_SCOPE: dict[tuple[str, int], str] = {}


def _llama_cpp_vectors(name: str) -> list[tuple[str, list[int]]]:
    folder = shared_path("chat/tokenizers")
    texts = (folder / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = (folder / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    return list(zip(texts, [[int(i) for i in line.split()] for line in lines[: len(texts)]], strict=True))


def _assert_equal(tokenizer: Tokenizer, name: str, vectors: list[tuple[str, list[int]]]) -> None:
    different = [
        (i, text, expected, ids)
        for i, (text, expected) in enumerate(vectors)
        if (ids := tokenizer.encode(text, add_special_tokens=False)) != expected
    ]
    expected_to_differ = {index for listed, index in OUT_OF_SCOPE if listed == name}
    assert {i for i, *_ in different} == expected_to_differ, different[:3]


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_llama_cpp_vectors(name: str) -> None:
    vectors = _llama_cpp_vectors(name)
    assert len(vectors) >= 45
    _assert_equal(gguf_tokenizer(name), name, vectors)


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2"])
def test_golden_ids(name: str) -> None:
    vectors = golden_ids(name)
    assert len(vectors) > 300
    _assert_equal(gguf_tokenizer(name), name, vectors)


def test_golden_ids_of_smollm2(smollm2_path: Path) -> None:
    _assert_equal(file_tokenizer(smollm2_path), "smollm2", golden_ids("smollm2"))


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_decode_gives_the_text_back(name: str) -> None:
    tokenizer = gguf_tokenizer(name)
    for text, ids in _llama_cpp_vectors(name):
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2"])
def test_decode_of_golden_ids_gives_the_text_back(name: str) -> None:
    tokenizer = gguf_tokenizer(name)
    for text, ids in golden_ids(name):
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
