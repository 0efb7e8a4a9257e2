"""Every format equals the `gguf` package, our independent oracle, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from forebay.ops.tensor import BytesArray, F32Array, Tensor
from forebay.weights.formats import FORMATS, FORMATS_BY_GGML_TYPE, BlockFormat

NAMES = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"]


def oracle(fmt: BlockFormat, data: BytesArray) -> F32Array:
    with np.errstate(all="ignore"):
        return np.asarray(gguf.dequantize(data, GGMLQuantizationType(fmt.ggml_type)))


def bits(values: F32Array) -> npt.NDArray[np.uint32]:
    """Raw bits, with every NaN the same (its payload depends on the lane that made it)."""
    return np.where(np.isnan(values), np.float32(np.nan), values).view(np.uint32)


def random_blocks(fmt: BlockFormat, rows: int, columns: int, seed: int) -> BytesArray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, size=(rows, fmt.row_bytes(columns)), dtype=np.uint8)


def test_the_registry_holds_exactly_the_formats_we_promise() -> None:
    assert list(FORMATS) == NAMES
    assert all(FORMATS[name].name == name for name in NAMES)
    assert len(FORMATS_BY_GGML_TYPE) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_geometry_equals_the_oracle(name: str) -> None:
    fmt = FORMATS[name]
    kind = GGMLQuantizationType[name.upper()]
    assert (fmt.ggml_type, fmt.block_size, fmt.block_bytes) == (kind.value, *GGML_QUANT_SIZES[kind])
    assert fmt.quantized is (name not in ("f32", "f16", "bf16"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (3, 2), (17, 3)])
def test_random_bytes_dequantize_to_the_same_bits(name: str, rows: int, blocks: int) -> None:
    """Random bytes reach every field of a block: infinite, NaN and denormal scales too."""
    fmt = FORMATS[name]
    columns = blocks * max(fmt.block_size, 64)
    data = random_blocks(fmt, rows, columns, seed=rows)
    got = fmt.dequantize(data, columns)
    assert got.shape == (rows, columns)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(bits(got), bits(oracle(fmt, data)))


@pytest.mark.parametrize("name", ["q4_0", "q6_k"])
def test_more_blocks_than_one_chunk(name: str) -> None:
    fmt = FORMATS[name]
    data = random_blocks(fmt, 3001, fmt.block_size * 3, seed=1)
    np.testing.assert_array_equal(bits(fmt.dequantize(data, fmt.block_size * 3)), bits(oracle(fmt, data)))


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"])
def test_quantized_by_the_oracle_comes_back_close(name: str) -> None:
    fmt = FORMATS[name]
    values = np.random.default_rng(2).standard_normal((5, 96), dtype=np.float32)
    data = gguf.quantize(values, GGMLQuantizationType(fmt.ggml_type))
    step = np.ptp(values) / 15
    assert np.abs(fmt.dequantize(data, 96) - values).max() < step


@pytest.mark.parametrize("name", NAMES)
def test_unaligned_and_read_only_data(name: str) -> None:
    """A safetensors file may put a tensor at any byte, and a mapped file cannot be written."""
    fmt = FORMATS[name]
    columns = max(fmt.block_size, 8)
    data = random_blocks(fmt, 2, columns, seed=3)
    shifted = np.frombuffer(b"\0" + data.tobytes(), dtype=np.uint8)[1:].reshape(data.shape)
    got = fmt.dequantize(shifted, columns)
    assert got.flags.aligned
    np.testing.assert_array_equal(bits(got), bits(oracle(fmt, data)))


def test_wrong_shapes_are_refused() -> None:
    fmt = FORMATS["q4_1"]
    with pytest.raises(ValueError, match="33 columns are not a multiple of q4_1's block size 32"):
        fmt.dequantize(np.zeros((1, 20), dtype=np.uint8), 33)
    with pytest.raises(ValueError, match=r"must be uint8 \(rows, 40\), not uint8 \(1, 20\)"):
        fmt.dequantize(np.zeros((1, 20), dtype=np.uint8), 64)


def test_rows_of_a_tensor_can_be_selected() -> None:
    fmt = FORMATS["q8_0"]
    tensor = Tensor("w", fmt, 6, 64, random_blocks(fmt, 6, 64, seed=4))
    whole = bits(tensor.dequantize())
    np.testing.assert_array_equal(bits(tensor.select_rows(slice(2, 5)).dequantize()), whole[2:5])
    np.testing.assert_array_equal(bits(tensor.select_rows(np.array([5, 0])).dequantize()), whole[[5, 0]])
