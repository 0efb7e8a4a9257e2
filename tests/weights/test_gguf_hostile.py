"""Hostile GGUF files: one clear line each, and never a hang, a crash or a huge allocation."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.errors import ModelFormatError, ModelSourceError, UnsupportedModelError
from forebay.weights.gguf import GGUFCheckpoint
from tests.weights.files import ARRAY, STRING, U32, info, key, raw_gguf, text, write_gguf

F32, Q4_0 = 0, 2


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + data


def nested(depth: int) -> bytes:
    return array(ARRAY, 1) * depth + array(U32, 1, u32(1))


CORRUPT = {
    "not GGUF": (raw_gguf(magic=b"PK\3\4"), r"is not a GGUF file: it starts with b'PK\\x03\\x04'"),
    "empty": (b"", "the magic number needs 4 bytes at offset 0"),
    "short": (b"GGUF\3\0", "the version needs 4 bytes"),
    "tensor count": (raw_gguf(num_tensors=2**64 - 1), "tensor count is 18446744073709551615"),
    "tensor count past the end": (raw_gguf(num_tensors=1000), "tensor count of 1000 cannot be in the"),
    "key count": (raw_gguf(num_keys=2**63), "metadata count is 9223372036854775808"),
    "key count past the end": (raw_gguf(num_keys=1000), "metadata count of 1000 cannot be in the"),
    "key length": (
        raw_gguf(keys=[struct.pack("<Q", 2**62) + bytes(64)]),
        "metadata key 0 is 4611686018427387904 bytes",
    ),
    "empty key": (raw_gguf(keys=[key("", U32, u32(1))]), "metadata key 0 is 0 bytes long"),
    "key not UTF-8": (raw_gguf(keys=[key(b"\xff\xfe", U32, u32(1))]), "metadata key 0 is not UTF-8"),
    "key twice": (raw_gguf(keys=[key("a", U32, u32(1))] * 2), "metadata key 'a' appears twice"),
    "value kind": (raw_gguf(keys=[key("a", 13, u32(1))]), "metadata 'a' has unknown value type 13"),
    "string length": (raw_gguf(keys=[key("a", STRING, struct.pack("<Q", 2**64 - 1))]), "metadata 'a' needs 1844"),
    "string not UTF-8": (raw_gguf(keys=[key("a", STRING, text(b"\x80"))]), "metadata 'a' is not UTF-8"),
    "boolean": (raw_gguf(keys=[key("a", 7, b"\2")]), "metadata 'a' holds a boolean that is neither 0 nor 1"),
    "array kind": (raw_gguf(keys=[key("a", ARRAY, array(99, 1, u32(1)))]), "metadata 'a' has unknown value type 99"),
    "array count": (
        raw_gguf(keys=[key("a", ARRAY, array(U32, 2**61))]),
        "length of metadata 'a' is 2305843009213693952",
    ),
    "array past the end": (
        raw_gguf(keys=[key("a", ARRAY, array(0, 5000))]),
        "length of metadata 'a' of 5000 cannot be",
    ),
    "strings past the end": (
        raw_gguf(keys=[key("a", ARRAY, array(STRING, 2, text("x" * 30) + struct.pack("<Q", 99)))]),
        "element 1 of metadata 'a' runs past the end",
    ),
    "many arrays": (
        raw_gguf(keys=[key("a", ARRAY, array(ARRAY, 1 << 18) + bytes(12 << 18))]),
        r"length of metadata 'a' is 262144 \(at most 131072 allowed\)",
    ),
    "deep arrays": (raw_gguf(keys=[key("a", ARRAY, nested(5))]), "nests arrays more than 4 deep"),
    "alignment zero": (raw_gguf(keys=[key("general.alignment", U32, u32(0))]), "general.alignment is '0'"),
    "alignment odd": (raw_gguf(keys=[key("general.alignment", U32, u32(24))]), "general.alignment is '24'"),
    "alignment text": (raw_gguf(keys=[key("general.alignment", STRING, text("x"))]), "general.alignment is 'x'"),
    "no dimensions": (raw_gguf(infos=[info("t", [], F32, 0)], data=bytes(64)), "tensor 't' has 0 dimensions"),
    "many dimensions": (raw_gguf(infos=[info("t", [1] * 5, F32, 0)], data=bytes(64)), "tensor 't' has 5 dimensions"),
    "endless dimensions": (
        raw_gguf(infos=[text("t") + u32(2**32 - 1) + bytes(40)]),
        "tensor 't' has 4294967295 dimensions",
    ),
    "zero dimension": (raw_gguf(infos=[info("t", [4, 0], F32, 0)]), r"tensor 't' has an impossible shape \[4, 0\]"),
    "product overflows": (
        raw_gguf(infos=[info("t", [2**32, 2**32], F32, 0)], data=bytes(64)),
        "tensor 't' has an impossible shape",
    ),
    "half a block": (
        raw_gguf(infos=[info("t", [33], Q4_0, 0)], data=bytes(64)),
        "rows of 33 values, not a multiple of 32",
    ),
    "unaligned": (
        raw_gguf(infos=[info("t", [4], F32, 4)], data=bytes(64)),
        "tensor 't' starts at 4, not a multiple of 32",
    ),
    "past the end": (
        raw_gguf(infos=[info("t", [16], F32, 32)], data=bytes(64)),
        "tensor 't' ends at byte 96 of a 64 byte data section",
    ),
    "offset overflows": (
        raw_gguf(infos=[info("t", [16], F32, 2**64 - 32)], data=bytes(64)),
        "tensor 't' ends at byte 18446744073709551648",
    ),
    "overlap": (
        raw_gguf(infos=[info("a", [16], F32, 0), info("b", [8], F32, 32)], data=bytes(64)),
        "tensors 'a' and 'b' overlap",
    ),
    "tensor twice": (
        raw_gguf(infos=[info("a", [8], F32, 0), info("a", [8], F32, 32)], data=bytes(64)),
        "tensor 'a' appears twice",
    ),
    "control characters": (
        raw_gguf(infos=[info("\x1b[2J\n" + "x" * 200, [8], F32, 3)], data=bytes(64)),
        r"tensor '\\x1b\[2J\\nx+\.\.\.' starts at 3",
    ),
}

UNSUPPORTED = {
    "version 1": (raw_gguf(version=1), "GGUF version 1, Forebay reads 2 and 3"),
    "version 9": (raw_gguf(version=9), "GGUF version 9, Forebay reads 2 and 3"),
    "big-endian": (raw_gguf(version=3 << 24), "is a big-endian GGUF: use the little-endian file"),
    "IQ4_XS": (
        raw_gguf(infos=[info("t", [256], 23, 0)], data=bytes(256)),
        "tensor 't' has type IQ4_XS; use a file with",
    ),
    "no such type": (raw_gguf(infos=[info("t", [256], 777, 0)], data=bytes(64)), "tensor 't' has type number 777"),
    "split": (raw_gguf(keys=[key("split.count", 2, b"\3\0")]), "is one of 3 parts: join them"),
}


@pytest.mark.parametrize("case", CORRUPT)
def test_corrupt_files_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    content, message = CORRUPT[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=message) as caught:
        GGUFCheckpoint(path)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_files_say_what_to_do(case: str, tmp_path: Path) -> None:
    content, message = UNSUPPORTED[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        GGUFCheckpoint(path)
    assert "\n" not in caught.value.message


def test_missing_and_irregular_files(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="does not exist: check the path"):
        GGUFCheckpoint(tmp_path / "none.gguf")
    with pytest.raises(ModelSourceError, match="is not a regular file"):
        GGUFCheckpoint(tmp_path)


def test_a_header_without_tensors_needs_no_padding(tmp_path: Path) -> None:
    path = tmp_path / "vocab.gguf"
    path.write_bytes(raw_gguf(keys=[key("a", U32, u32(7))]).rstrip(b"\0") + bytes(3))
    assert GGUFCheckpoint(path).config == {"a": 7}


def test_version_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw_gguf(version=2, infos=[info("t", [2, 3], F32, 0)], data=struct.pack("<6f", *range(6))))
    np.testing.assert_array_equal(GGUFCheckpoint(path).tensor("t").dequantize(), [[0, 1], [2, 3], [4, 5]])


def test_nested_arrays_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    value = array(ARRAY, 2, array(U32, 2, u32(1) + u32(2)) + array(STRING, 1, text("x")))
    path.write_bytes(raw_gguf(keys=[key("a", ARRAY, value)]))
    assert GGUFCheckpoint(path).config == {"a": [[1, 2], ["x"]]}


def small_valid_file(folder: Path) -> bytes:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("llama.block_count", 2)
        writer.add_float32("llama.rope.freq_base", 10000.0)
        writer.add_bool("tokenizer.ggml.add_bos_token", True)
        writer.add_array("tokenizer.ggml.tokens", ["<s>", "</s>", "a", "é"])
        writer.add_array("tokenizer.ggml.scores", [0.0, -1.0, -2.0, -3.0])
        writer.add_custom_alignment(32)

    tensors = {"token_embd.weight": np.ones((4, 32), np.float32), "norm": np.ones(5, np.float32)}
    quantize = {"token_embd.weight": GGMLQuantizationType.Q4_0}
    return write_gguf(folder / "valid.gguf", fill=fill, tensors=tensors, quantize=quantize).read_bytes()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("fuzz")
    return folder / "fuzzed.gguf", small_valid_file(folder)


def open_and_read(path: Path, content: bytes) -> None:
    """Everything a loader does. Only our two errors may come out, and little memory may be used."""
    path.write_bytes(content)
    message = ""
    tracemalloc.start()
    try:
        checkpoint = GGUFCheckpoint(path)
        assert len(checkpoint.digest) == 64
        for name in checkpoint.tensor_names():
            checkpoint.tensor(name).dequantize()
        checkpoint.close()
    except (ModelFormatError, UnsupportedModelError) as error:
        message = error.message
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4_000_000
    assert message.isprintable()  # one line, whatever bytes the names in the file are made of


def test_every_truncation_is_survived(valid: tuple[Path, bytes]) -> None:
    path, content = valid
    for length in range(len(content)):
        open_and_read(path, content[:length])


FUZZ = settings(
    max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@FUZZ
@given(data=st.data())
def test_bit_flips_are_survived(valid: tuple[Path, bytes], data: st.DataObject) -> None:
    path, content = valid
    positions = data.draw(st.lists(st.integers(0, len(content) * 8 - 1), min_size=1, max_size=6))
    flipped = bytearray(content)
    for position in positions:
        flipped[position // 8] ^= 1 << position % 8
    open_and_read(path, bytes(flipped))


@FUZZ
@given(data=st.data())
def test_overwritten_integers_are_survived(valid: tuple[Path, bytes], data: st.DataObject) -> None:
    """Counts, lengths and offsets are 8 bytes wide: put telling values everywhere."""
    path, content = valid
    position = data.draw(st.integers(0, len(content) - 8))
    value = data.draw(st.sampled_from([0, 1, 31, 255, 2**16, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]))
    open_and_read(path, content[:position] + struct.pack("<Q", value) + content[position + 8 :])


@FUZZ
@given(junk=st.binary(max_size=400))
def test_junk_after_the_magic_is_survived(valid: tuple[Path, bytes], junk: bytes) -> None:
    open_and_read(valid[0], b"GGUF" + struct.pack("<I", 3) + junk)
