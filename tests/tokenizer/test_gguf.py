"""Tokenizers built from GGUF metadata: special tokens, BOS and EOS, merging by score, and honest refusals."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import InvalidValueError, ModelFormatError, UnsupportedFieldError, UnsupportedModelError
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.gguf import tokenizer_from_gguf
from forebay.tokenizer.pieces import byte_alphabet
from forebay.tokenizer.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from forebay.tokenizer.spm import SentencePieceBPE
from forebay.weights.checkpoint import open_checkpoint
from tests.support.shared import shared_path
from tests.tokenizer.vocabularies import (
    GGUF_NAMES,
    file_tokenizer,
    gguf_metadata,
    gguf_tokenizer,
    golden_ids,
    stories_tokenizer,
)


def bpe_metadata(**changes: Any) -> dict[str, Any]:
    """A byte-level vocabulary of bytes and two special tokens; a change to None takes a key away."""
    metadata = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*byte_alphabet(), "ab", "<|im_end|>", "<think>"],
        "token_type": [1] * 257 + [3, 4],
        "merges": ["a b"],
        "bos_token_id": 0,
        "eos_token_id": 257,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}


def test_smollm2_builds_fast(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        tokenizer_from_gguf(checkpoint.config)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.4


def test_smollm2_facts(smollm2_path: Path) -> None:
    tokenizer = file_tokenizer(smollm2_path)
    assert (tokenizer.vocab_size, tokenizer.bos_token_id) == (49152, 1)
    assert tokenizer.eos_token_ids == {0, 2}
    text = tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == tokenizer.encode(text)  # add_bos_token is false
    assert ids.count(1) == 3
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("llama-spm", "Hello", [1, 15043]),
        ("llama-spm", "", [1]),
        ("llama-spm", "<s>Hello</s>Hello", [1, 1, 15043, 2, 15043]),
        ("phi-3", "<|user|>\nHello<|end|>\n<|assistant|>\n", [1, 32010, 15043, 32007, 32001]),
        ("llama-bpe", "Hello<|eot_id|>", [128000, 9906, 128009]),
        ("deepseek-coder", "Hello", [32013, 17535]),
        ("gpt-2", "Hello<|endoftext|>", [15496, 50256]),
    ],
)
def test_special_tokens_in_and_around_a_text(name: str, text: str, ids: list[int]) -> None:
    assert gguf_tokenizer(name).encode(text) == ids


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("llama-bpe", {128001, 128009}),
        ("qwen2", {151643, 151645}),
        ("phi-3", {32000, 32007}),
        ("llama-spm", {2}),
        ("gpt-2", {50256}),
    ],
)
def test_a_generation_ends_at(name: str, ends: set[int]) -> None:
    assert gguf_tokenizer(name).eos_token_ids == ends


def test_add_bos_and_add_eos() -> None:
    def ids(**changes: Any) -> list[int]:
        return tokenizer_from_gguf(bpe_metadata(**changes)).encode("ab")

    assert ids() == [256]
    assert ids(add_bos_token=True, add_eos_token=True) == [0, 256, 257]
    assert ids(pre="llama-bpe") == [0, 256]
    assert ids(pre="llama-bpe", add_bos_token=False) == [256]


def test_special_token_strings_reach_the_template() -> None:
    metadata = bpe_metadata(padding_token_id=4294967295) | {
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}",
        "tokenizer.chat_template.tool_use": "{{ tools | length }} tools{{ extra }}",
    }
    tokenizer = tokenizer_from_gguf(metadata)
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.render_chat(messages) == "!hi<|im_end|>"
    assert tokenizer.render_chat(messages, tools=[{"type": "function"}], extra="!") == "1 tools!"


def test_no_template() -> None:
    tokenizer = tokenizer_from_gguf(bpe_metadata())
    assert tokenizer.chat_template is None
    with pytest.raises(UnsupportedFieldError, match="no chat template; send a prompt to /v1/completions"):
        tokenizer.render_chat([{"role": "user", "content": "hi"}])


def test_lone_surrogates() -> None:
    tokenizer = tokenizer_from_gguf(bpe_metadata() | {"tokenizer.chat_template": "{{ messages[0].content }}"})
    with pytest.raises(InvalidValueError, match=r"prompt: lone surrogate U\+D800 at character 2") as caught:
        tokenizer.encode("ab\ud800")
    assert caught.value.param == "prompt"
    with pytest.raises(InvalidValueError, match="messages: lone surrogate") as caught:
        tokenizer.render_chat([{"role": "user", "content": "\udfff"}])
    assert caught.value.param == "messages"


def test_an_unknown_pre_tokenizer_lists_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'martian', which is not known.*gpt-2.*llama-bpe.*smollm"):
        tokenizer_from_gguf(bpe_metadata(pre="martian"))


def test_a_missing_pre_tokenizer_warns(caplog: pytest.LogCaptureFixture) -> None:
    assert tokenizer_from_gguf(bpe_metadata(pre=None)).encode("ab") == [256]
    assert "tokenizer.ggml.pre is missing" in caplog.text


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", None, 3])
def test_an_unknown_model(model: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.model"):
        tokenizer_from_gguf(bpe_metadata(model=model))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": None}, r"tokens is missing"),
        ({"tokens": []}, r"tokens is missing"),
        ({"tokens": "abc"}, r"tokens is missing"),
        ({"tokens": ["a", 1]}, r"tokens is not a list of str"),
        ({"tokens": ["a", "b", "a"]}, r"same token twice"),
        ({"token_type": [1]}, r"token_type has 1 entries for 259 tokens"),
        ({"merges": None}, r"merges is missing"),
        ({"merges": ["a"]}, r"merges does not fit the tokens"),
        ({"merges": ["x yz"]}, r"merges does not fit the tokens"),
        ({"eos_token_id": 259}, r"eos_token_id is 259, not an id below the vocabulary's 259"),
        ({"bos_token_id": -1}, r"bos_token_id is -1"),
        ({"bos_token_id": "x"}, r"bos_token_id is 'x'"),
        ({"bos_token_id": None, "add_bos_token": True}, r"add_bos_token is true, but the file names no such token"),
        ({"model": "llama"}, r"scores is missing"),
        ({"model": "llama", "scores": [0.0]}, r"scores has 1 entries for 259 tokens"),
        ({"model": "llama", "scores": ["x"] * 259}, r"scores is not a list of float"),
    ],
)
def test_broken_metadata(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        tokenizer_from_gguf(bpe_metadata(**changes))


def test_every_pre_tokenizer_compiles_and_loses_nothing() -> None:
    built: dict[PreTokenizer, Tokenizer] = {}
    text = "Hello  World's 12345 \u4e2d\u6587\u3000\u0e01\u0e33 'LL\r\n\n\t x=y;\u00e9\u0301 \U0001f999!"
    for name, pre in PRE_TOKENIZERS.items():
        if pre not in built:
            built[pre] = tokenizer_from_gguf(bpe_metadata(pre=name))
        assert built[pre].decode(built[pre].encode(text, add_special_tokens=False)) == text


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("smollm", "year 2024's", ["year", " ", "2", "0", "2", "4", "'s"]),
        ("gpt-2", "year 2024's  x", ["year", " 2024", "'s", " ", " x"]),
        ("llama-bpe", "year 2024'S\n\n x", ["year", " ", "202", "4", "'S", "\n\n", " x"]),
        ("qwen2", "a1234", ["a", "1", "2", "3", "4"]),
        ("tekken", "getHTTPResponse\u0416\u0436", ["get", "HTTPResponse", "\u0416\u0436"]),
        ("gpt-4o", "camelCase's", ["camel", "Case's"]),
        ("deepseek-v3", "a\u4e2d\u65871234", ["a", "\u4e2d\u6587", "123", "4"]),
        ("falcon", "1234+a", ["123", "4", "+", "a"]),
    ],
)
def test_how_words_are_cut(pre: str, text: str, words: list[str]) -> None:
    """Bytes never merge across words: with every pair of a word's bytes mergeable, ids show the cuts."""
    alphabet = {byte: char for char, byte in byte_alphabet().items()}
    spelled = ["".join(alphabet[byte] for byte in word.encode()) for word in dict.fromkeys(words)]
    whole = "".join(alphabet[byte] for byte in text.encode())
    tokens = [*byte_alphabet(), *dict.fromkeys(part for word in (*spelled, whole) for part in _prefixes(word))]
    merges = [f"{token[:-1]} {token[-1]}" for token in tokens[256:]]
    metadata = bpe_metadata(pre=pre, tokens=tokens, token_type=None, merges=merges, eos_token_id=0, add_bos_token=False)
    tokenizer = tokenizer_from_gguf(metadata)
    assert [tokenizer.token_text(i) for i in tokenizer.encode(text)] == words


def _prefixes(word: str) -> list[str]:
    return [word[:end] for end in range(2, len(word) + 1)]


def test_the_highest_score_merges_first_and_the_leftmost_of_equals() -> None:
    tokens = ["a", "b", "c", "ab", "bc", "aa", "aaa"]
    byte_ids = [0] * 256

    def encode(text: str, **scores: float) -> list[str]:
        spm = SentencePieceBPE(tokens, [scores.get(token, -9.0) for token in tokens], byte_ids)
        return [tokens[i] for i in spm.encode(text)]

    assert encode("abc", ab=1, bc=2) == ["a", "bc"]
    assert encode("abc", ab=1, bc=1) == ["ab", "c"]
    assert encode("aaaaa") == ["aaa", "aa"]


def test_cutting_at_impossible_neighbours_changes_nothing() -> None:
    """Against the plain method: the whole text as one segment."""
    metadata = gguf_metadata("llama-spm")
    tokens: Any = metadata["tokenizer.ggml.tokens"]
    scores: Any = metadata["tokenizer.ggml.scores"]
    cut = SentencePieceBPE(tokens, scores, [0] * 256)
    rng = random.Random(7)
    words = [token for token in tokens[259:] if len(token) < 9]
    for _ in range(300):
        text = "".join(rng.choice(words) for _ in range(rng.randint(0, 12)))
        assert cut.encode(text) == list(cut._merge(text))


def test_scores_give_the_ids_that_merges_give() -> None:
    """The TinyStories vocabulary exists as scores (tok512.bin of llama2.c) and as a tokenizer.json with merges."""
    raw = shared_path("models/stories260K/tok512.bin").read_bytes()
    tokens, scores, offset = [], [], 4
    while offset < len(raw):
        score, length = struct.unpack_from("<fi", raw, offset)
        tokens.append(raw[offset + 8 : offset + 8 + length].decode().replace(" ", "\u2581"))
        scores.append(score)
        offset += 8 + length
    tokens[3:259] = [f"<0x{byte:02X}>" for byte in range(256)]
    spm = SentencePieceBPE(tokens, scores, list(range(3, 259)))
    stories = stories_tokenizer()
    texts = [text for text, _ in golden_ids("gpt-2") if not any(mark in text for mark in ("<unk>", "<s>", "</s>"))]
    assert len(texts) > 200
    for text in texts:
        assert spm.encode(" " + text) == stories.encode(text, add_special_tokens=False)


def test_digests_differ_and_repeat() -> None:
    assert len({gguf_tokenizer(name).digest for name in GGUF_NAMES}) == len(GGUF_NAMES)
    base = bpe_metadata()
    changes: list[dict[str, Any]] = [
        {},
        {"pre": "smollm"},
        {"add_bos_token": True},
        {"eos_token_id": 1},
        {"merges": ["a c"], "tokens": [*byte_alphabet(), "ac", "<|im_end|>", "<think>"]},
        {"token_type": [1] * 257 + [3, 3]},
    ]
    digests = [tokenizer_from_gguf(bpe_metadata(**change)).digest for change in changes]
    digests.append(tokenizer_from_gguf(base | {"tokenizer.chat_template": "x"}).digest)
    assert len(set(digests)) == len(digests)
    assert tokenizer_from_gguf(base).digest == digests[0]
