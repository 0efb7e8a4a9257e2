"""Tokenizers from tokenizer.json and its companions; the `tokenizers` library itself is the oracle."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from forebay.errors import ModelFormatError, UnsupportedModelError
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.pieces import byte_alphabet
from tests.support.shared import shared_path
from tests.tokenizer.vocabularies import file_tokenizer, stories_tokenizer

CHAT = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"


def byte_level_library() -> tokenizers.Tokenizer:
    vocab = {char: i for i, char in enumerate([*byte_alphabet(), "ab"])}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", "</s>"])
    library.add_tokens(["<think>"])
    return library


def open_folder(folder: Path, library: tokenizers.Tokenizer | None = None, **files: Any) -> Tokenizer:
    """A model folder with this tokenizer and these files ("tokenizer_config" -> tokenizer_config.json)."""
    save_file({"weight": np.zeros((1, 1), np.float32)}, folder / "model.safetensors")
    for name, content in {"config": {"model_type": "llama"}, **files}.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    if library is not None:
        library.save(str(folder / "tokenizer.json"))
    return file_tokenizer(folder)


@given(text=st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_stories_equal_the_library(text: str) -> None:
    tokenizer = stories_tokenizer()
    oracle = tokenizers.Tokenizer.from_file(str(shared_path("models/stories260K/hf/tokenizer.json")))
    ids = tokenizer.encode(text)
    assert ids == oracle.encode(text).ids
    assert tokenizer.encode(text, add_special_tokens=False) == ids[1:]
    for skip in (True, False):
        assert tokenizer.decode(ids, skip_special_tokens=skip) == oracle.decode(ids, skip_special_tokens=skip)


def test_stories_facts() -> None:
    tokenizer = stories_tokenizer()
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, set(tokenizer.eos_token_ids)) == (512, 1, {2})
    assert tokenizer.chat_template is None
    golden = json.loads(shared_path("models/stories260K/greedy_golden_fp32.json").read_text())
    assert golden
    for row in golden:
        assert tokenizer.encode(row["prompt"]) == row["prompt_ids"]
        ids = row["prompt_ids"] + row["greedy_ids"]
        assert tokenizer.decode(ids) == row["text"].removeprefix(" ")  # run.c prints the first word's space too


def test_a_byte_level_folder(tmp_path: Path) -> None:
    library = byte_level_library()
    tokenizer = open_folder(
        tmp_path,
        library,
        tokenizer_config={"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": CHAT},
        generation_config={"eos_token_id": [258, 259]},
    )
    assert (tokenizer.bos_token_id, set(tokenizer.eos_token_ids), tokenizer.vocab_size) == (257, {258, 259}, 260)
    text = "ab <think>\u00e9</s>"
    ids = tokenizer.encode(text)
    assert ids == library.encode(text).ids
    for skip in (True, False):
        assert tokenizer.decode(ids, skip_special_tokens=skip) == library.decode(ids, skip_special_tokens=skip)
    messages = [{"role": "user", "content": "ab"}]
    assert tokenizer.render_chat(messages) == "<s>ab</s>"


def test_ids_with_holes(tmp_path: Path) -> None:
    """The highest id counts, not how many there are."""
    vocab = {char: i for i, char in enumerate(byte_alphabet())} | {"ab": 300}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    tokenizer = open_folder(tmp_path, library, generation_config={"eos_token_id": 300})
    assert (tokenizer.vocab_size, set(tokenizer.eos_token_ids)) == (301, {300})
    assert tokenizer.encode("ab") == [300]
    assert tokenizer.decode([300, 280]) == "ab"


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_a_metaspace_folder(tmp_path: Path, scheme: Any) -> None:
    pieces = ["\u2581", "a", "b", "\u2581\u2581", "\u2581a"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("\u2581", "\u2581"), ("\u2581", "a")]))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    library.decoder = decoders.Metaspace(prepend_scheme=scheme)
    library.add_special_tokens(["<s>"])
    tokenizer = open_folder(tmp_path, library, tokenizer_config={"bos_token": "<s>"})
    for ids in ([4, 0, 1], [3, 3, 2], [5, 0, 4, 5, 4], [0, 0], [1, 4], []):
        for skip in (True, False):
            expected = library.decode(ids, skip_special_tokens=skip)
            if ids[:1] == [5] and not skip:
                continue  # the library takes the mark off the special token, which has none
            assert tokenizer.decode(ids, skip_special_tokens=skip) == expected


def test_a_gemma_style_folder_keeps_the_first_space(tmp_path: Path) -> None:
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {piece: i for i, piece in enumerate(["<unk>", *bytes_, "\u2581", "a", "\u2581a"])}
    library = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=[("\u2581", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    library.normalizer = normalizers.Replace(" ", "\u2581")
    library.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = open_folder(tmp_path, library)
    for text in (" a a", "a\u00e9\U0001f999", "  "):
        ids = tokenizer.encode(text)
        assert ids == library.encode(text).ids
        assert tokenizer.decode(ids) == library.decode(ids) == text


def test_bos_and_eos_around_a_text(tmp_path: Path) -> None:
    library = byte_level_library()
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 257), ("</s>", 258)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>"}

    def ids(folder: str, **config: Any) -> list[int]:
        (tmp_path / folder).mkdir()
        return open_folder(tmp_path / folder, library, tokenizer_config={**names, **config}).encode("ab")

    assert ids("as_is") == [257, 256, 258]
    assert ids("no_bos", add_bos_token=False) == [256, 258]
    assert ids("no_eos", add_eos_token=False) == [257, 256]
    assert ids("both", add_bos_token=True, add_eos_token=True) == [257, 256, 258]
    library.post_processor = processors.ByteLevel()
    assert ids("added", add_bos_token=True) == [257, 256]
    assert ids("none") == [256]


def test_eos_falls_back_to_config_json(tmp_path: Path) -> None:
    tokenizer = open_folder(tmp_path, byte_level_library(), config={"eos_token_id": 258, "bos_token_id": 257})
    assert (tokenizer.bos_token_id, set(tokenizer.eos_token_ids)) == (257, {258})


def test_chat_template_files(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "ab"}]
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    tokenizer = open_folder(tmp_path, byte_level_library(), tokenizer_config={"chat_template": named})
    assert tokenizer.render_chat(messages) == "plain"
    assert tokenizer.render_chat(messages, tools=[]) == "tools"
    file_tokenizer.cache_clear()
    (tmp_path / "chat_template.jinja").write_text("from the file")
    with_file = file_tokenizer(tmp_path)
    assert with_file.render_chat(messages, tools=[]) == "from the file"
    assert with_file.digest != tokenizer.digest


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    library = byte_level_library()
    library.enable_truncation(2)
    library.enable_padding(length=8)
    assert len(open_folder(tmp_path, library).encode("xyz")) == 3


def test_a_special_token_the_file_does_not_mark(tmp_path: Path) -> None:
    vocab = {char: i for i, char in enumerate([*byte_alphabet(), "<end>"])}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    tokenizer = open_folder(tmp_path, library, tokenizer_config={"eos_token": "<end>", "pad_token": "<none>"})
    assert tokenizer.encode("a<end>")[-1] == 256
    assert tokenizer.decode(tokenizer.encode("a<end>")) == "a"
    assert tokenizer.eos_token_ids == {256}
    assert tokenizer.vocab_size == 257


def test_no_tokenizer_json(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"no tokenizer\.json.*save_pretrained"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer", "{", "tokenizer.json cannot be read"),
        ("tokenizer", "[]", "tokenizer.json cannot be read"),
        ("tokenizer_config", "{", "tokenizer_config.json is not valid JSON"),
        ("generation_config", "[]", "generation_config.json is not a JSON object"),
        ("generation_config", {"eos_token_id": [1, 99999]}, "eos_token_id is 99999"),
        ("generation_config", {"eos_token_id": "x"}, "eos_token_id is 'x'"),
        ("generation_config", {"eos_token_id": [[1]]}, "eos_token_id is \\[1\\]"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: Any, message: str) -> None:
    library = None if name == "tokenizer" else byte_level_library()
    with pytest.raises(ModelFormatError, match=message):
        open_folder(tmp_path, library, **{name: content})


def test_a_decoder_we_do_not_know(tmp_path: Path) -> None:
    library = byte_level_library()
    library.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModelError, match=r"decoder .*WordPiece.* is not known"):
        open_folder(tmp_path, library)
    library.decoder = None
    with pytest.raises(UnsupportedModelError, match=r"decoder .* is not known"):
        open_folder(tmp_path, library)


def test_a_long_text_does_not_hold_up_other_threads() -> None:
    """A server streams other answers in one thread while another encodes a prompt of megabytes."""
    tokenizer, text = stories_tokenizer(), "Once upon a time. " * 20_000
    ticks, started, done = [time.monotonic()], threading.Event(), threading.Event()

    def tick() -> None:
        started.set()
        while not done.is_set():
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    started.wait()
    began = time.monotonic()
    tokenizer.encode(text)
    took = time.monotonic() - began
    done.set()
    ticker.join()
    assert max(later - earlier for earlier, later in pairwise(ticks)) < 0.6 * took
