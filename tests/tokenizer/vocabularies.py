"""Tokenizers of the shared vocabularies, opened once per test session through the same door as a model's."""

from __future__ import annotations

import gzip
import json
import tempfile
from functools import cache
from pathlib import Path

from forebay.tokenizer import Tokenizer, load_tokenizer
from forebay.tokenizer.gguf import tokenizer_from_gguf
from forebay.weights.checkpoint import open_checkpoint
from tests.support.shared import shared_path

GGUF_NAMES = ("deepseek-coder", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder")


@cache
def gguf_metadata(name: str) -> dict[str, object]:
    packed = shared_path(f"chat/tokenizers/ggml-vocab-{name}.gguf.gz")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.gguf"
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        checkpoint = open_checkpoint(path)
        try:
            return dict(checkpoint.config)
        finally:
            checkpoint.close()


@cache
def gguf_tokenizer(name: str) -> Tokenizer:
    return tokenizer_from_gguf(gguf_metadata(name))


@cache
def file_tokenizer(path: Path) -> Tokenizer:
    """Of a GGUF file or a Hugging Face folder."""
    checkpoint = open_checkpoint(path)
    try:
        return load_tokenizer(checkpoint)
    finally:
        checkpoint.close()


def stories_tokenizer() -> Tokenizer:
    return file_tokenizer(shared_path("models/stories260K/hf"))


def golden_ids(name: str) -> list[tuple[str, list[int]]]:
    """(text, ids without BOS) pairs made with the `tokenizers` library."""
    packed = shared_path(f"chat/tokenizers/tok_golden_{name}_dev.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(packed.read_bytes()).splitlines()]
    return [(row["text"], row["ids"]) for row in rows]
