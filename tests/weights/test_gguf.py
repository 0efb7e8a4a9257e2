"""GGUF files: real ones and generated ones, compared with the `gguf` package."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from forebay.errors import ModelFormatError
from forebay.weights.gguf import GGUFCheckpoint
from tests.support.shared import shared_path
from tests.weights.files import write_gguf

SMALL_VOCABULARIES = ["deepseek-coder", "gpt-2", "llama-spm", "phi-3", "starcoder"]
LARGE_VOCABULARIES = {"falcon": 65024, "llama-bpe": 128256, "qwen2": 151936}  # the oracle takes 10 s for one of these


def test_smollm2_opens_fast_and_equals_the_oracle(smollm2_path: Path) -> None:
    GGUFCheckpoint(smollm2_path).close()  # the page cache is warm and modules are loaded
    times = []
    for _ in range(3):
        started = time.perf_counter()
        checkpoint = GGUFCheckpoint(smollm2_path)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.2
    reader = gguf.GGUFReader(smollm2_path)
    assert checkpoint.tensor_names() == [tensor.name for tensor in reader.tensors]
    for expected in reader.tensors:
        tensor = checkpoint.tensor(expected.name)
        assert tensor.format.name == expected.tensor_type.name.lower()
        assert [tensor.columns, tensor.rows] == [*map(int, expected.shape), 1][:2]
        np.testing.assert_array_equal(tensor.data.reshape(-1), expected.data.view(np.uint8).reshape(-1))
    for name in ("blk.0.attn_q.weight", "blk.29.ffn_down.weight", "output_norm.weight"):
        tensor = checkpoint.tensor(name)
        source = next(t for t in reader.tensors if t.name == name)
        expected_values = gguf.dequantize(source.data, source.tensor_type).reshape(tensor.rows, tensor.columns)
        np.testing.assert_array_equal(tensor.dequantize().view(np.uint32), expected_values.view(np.uint32))


def test_smollm2_metadata(smollm2_path: Path) -> None:
    config = GGUFCheckpoint(smollm2_path).config
    assert config["general.architecture"] == "llama"
    assert config["llama.block_count"] == 30
    assert config["llama.attention.layer_norm_rms_epsilon"] == float(np.float32(1e-5))
    assert config["tokenizer.ggml.add_bos_token"] is False
    assert len(config["tokenizer.ggml.tokens"]) == 49152
    assert config["tokenizer.ggml.tokens"][:2] == ["<|endoftext|>", "<|im_start|>"]
    assert len(config["tokenizer.ggml.merges"]) == 48900


def test_tensors_are_views_that_outlive_the_checkpoint(smollm2_path: Path) -> None:
    checkpoint = GGUFCheckpoint(smollm2_path)
    tensor = checkpoint.tensor("blk.0.attn_k.weight")
    assert tensor.data.base is not None
    assert not tensor.data.flags.writeable
    before = tensor.data.sum()
    checkpoint.close()
    assert tensor.data.sum() == before
    with pytest.raises(ValueError, match="is closed"):
        checkpoint.tensor("blk.0.attn_k.weight")


def unpacked_vocabulary(name: str, folder: Path) -> Path:
    packed = shared_path(f"chat/tokenizers/ggml-vocab-{name}.gguf.gz")
    path = folder / "vocab.gguf"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.mark.parametrize("name", LARGE_VOCABULARIES)
def test_large_vocabulary_files_open(name: str, tmp_path: Path) -> None:
    config = GGUFCheckpoint(unpacked_vocabulary(name, tmp_path)).config
    tokens, types = config["tokenizer.ggml.tokens"], config["tokenizer.ggml.token_type"]
    assert len(tokens) == len(types) == len(set(tokens)) == LARGE_VOCABULARIES[name]


@pytest.mark.parametrize("name", SMALL_VOCABULARIES)
def test_vocabulary_files_equal_the_oracle(name: str, tmp_path: Path) -> None:
    path = unpacked_vocabulary(name, tmp_path)
    config = GGUFCheckpoint(path).config
    reader = gguf.GGUFReader(path)
    expected = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(config) == list(expected)
    for key, field in expected.items():
        if len(field.data) < 1000:
            assert config[key] == field.contents(), key
        else:
            assert len(config[key]) == len(field.data)
            for i in (0, 1, len(field.data) // 2, -1):
                assert config[key][i] == field.contents(i), (key, i)


def test_every_kind_of_metadata(tmp_path: Path) -> None:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_uint8("u8", 255)
        writer.add_int8("i8", -128)
        writer.add_uint16("u16", 65535)
        writer.add_int16("i16", -32768)
        writer.add_uint32("u32", 2**32 - 1)
        writer.add_int32("i32", -(2**31))
        writer.add_uint64("u64", 2**64 - 1)
        writer.add_int64("i64", -(2**63))
        writer.add_float32("f32", 0.5)
        writer.add_float64("f64", 0.1)
        writer.add_bool("yes", True)
        writer.add_string("text", "grüße 🦙\n")
        writer.add_array("bools", [True, False])
        writer.add_array("floats", [1.5, -2.5])
        writer.add_array("texts", ["a", "", "ü"])

    config = GGUFCheckpoint(write_gguf(tmp_path / "m.gguf", fill=fill)).config
    assert (config["u8"], config["i8"], config["u16"], config["i16"]) == (255, -128, 65535, -32768)
    assert (config["u32"], config["i32"]) == (2**32 - 1, -(2**31))
    assert (config["u64"], config["i64"]) == (2**64 - 1, -(2**63))
    assert (config["f32"], config["f64"], config["yes"]) == (0.5, 0.1, True)
    assert config["text"] == "grüße 🦙\n"
    assert (config["bools"], config["floats"], config["texts"]) == ([True, False], [1.5, -2.5], ["a", "", "ü"])
    assert type(config["bools"][0]) is bool


def test_shapes_alignment_and_formats(tmp_path: Path) -> None:
    """Odd sizes make padding between tensors; outer dimensions are flattened into rows."""
    rng = np.random.default_rng(0)
    values: dict[str, np.ndarray[Any, Any]] = {
        "vector": rng.standard_normal(7, dtype=np.float32),
        "half": rng.standard_normal((3, 5), dtype=np.float32).astype(np.float16),
        "experts": rng.standard_normal((2, 3, 64), dtype=np.float32),
    }
    path = write_gguf(
        tmp_path / "m.gguf", tensors=values, quantize={"experts": GGMLQuantizationType.Q5_1}, alignment=64
    )
    checkpoint = GGUFCheckpoint(path)
    assert checkpoint.config["general.alignment"] == 64
    vector, half, experts = (checkpoint.tensor(name) for name in values)
    assert (vector.rows, vector.columns) == (1, 7)
    np.testing.assert_array_equal(vector.vector(), values["vector"])
    np.testing.assert_array_equal(half.dequantize(), values["half"].astype(np.float32))
    assert (experts.format.name, experts.rows, experts.columns) == ("q5_1", 6, 64)
    for tensor in (vector, half, experts):
        assert tensor.data.ctypes.data % 64 == 0


def test_digest_follows_content_not_place(tmp_path: Path) -> None:
    values = {"a": np.arange(4096, dtype=np.float32), "b": np.ones((2, 8), dtype=np.float32)}
    first = write_gguf(tmp_path / "one.gguf", tensors=values)
    same = write_gguf(tmp_path / "two.gguf", tensors=values)
    values["b"][1, 7] = 2
    other = write_gguf(tmp_path / "three.gguf", tensors=values)
    digest = GGUFCheckpoint(first).digest
    assert len(digest) == 64
    assert GGUFCheckpoint(same).digest == digest
    assert GGUFCheckpoint(other).digest != digest


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    checkpoint = GGUFCheckpoint(write_gguf(tmp_path / "m.gguf"))
    with pytest.raises(ModelFormatError, match=r"has no tensor 'blk\.7'"):
        checkpoint.tensor("blk.7")
    assert checkpoint.file("tokenizer.json") is None
