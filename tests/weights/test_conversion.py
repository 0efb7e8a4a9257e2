"""Which matrices `model.weights` converts, why the others stay, and that it costs no more memory than it must."""

from __future__ import annotations

import gc
import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import ModelFormatError
from forebay.ops.tensor import Tensor
from forebay.weights.conversion import Conversion, ConvertedTensor, bits, decide, format_label
from forebay.weights.formats import FORMATS
from forebay.weights.mapped import MappedFile, drop_pages
from forebay.weights.quantize import quantize

ASKED = ("int8", "int4", "bf16", "f32")


def tensor(name: str, rows: int = 6, columns: int = 64, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    if name == "f16":
        return Tensor("w", FORMATS["f16"], rows, columns, values.astype("<f2").view(np.uint8))
    return Tensor("w", FORMATS[name], rows, columns, quantize(values, name))


@pytest.mark.parametrize(
    ("asked", "stored", "wanted", "wanted_outer"),
    [
        ("int8", "f32", "q8_0", "q8_0"),
        ("int8", "f16", "q8_0", "q8_0"),
        ("int8", "bf16", "q8_0", "q8_0"),
        ("int8", "q8_0", None, None),
        ("int8", "q6_k", None, None),
        ("int8", "q5_1", None, None),
        ("int8", "q4_1", None, None),
        ("int4", "bf16", "q4_1", "q8_0"),
        ("int4", "q8_0", "q4_1", None),
        ("int4", "q6_k", "q4_1", None),
        ("int4", "q5_1", "q4_1", None),
        ("int4", "q5_0", "q4_1", None),
        ("int4", "q5_k", "q4_1", None),
        ("int4", "q4_1", None, None),
        ("int4", "q4_k", None, None),
        ("int4", "q4_0", None, None),
        ("bf16", "bf16", None, None),
        ("bf16", "f32", "bf16", "bf16"),
        ("bf16", "f16", "bf16", "bf16"),
        ("bf16", "q4_k", "bf16", "bf16"),
        ("f32", "q8_0", "f32", "f32"),
        ("f32", "f32", None, None),
    ],
)
def test_the_rule(asked: str, stored: str, wanted: str | None, wanted_outer: str | None) -> None:
    for outer, name in ((False, wanted), (True, wanted_outer)):
        target, what = decide(asked, FORMATS[stored], 256, outer=outer)
        assert (None if target is None else target.name) == name
        assert what.startswith(stored)


@pytest.mark.parametrize("asked", ["int8", "int4"])
@pytest.mark.parametrize("stored", FORMATS)
def test_quantizing_always_means_fewer_bits(asked: str, stored: str) -> None:
    for outer in (False, True):
        target, _ = decide(asked, FORMATS[stored], 256, outer=outer)
        assert target is None or bits(target) < bits(FORMATS[stored])


@pytest.mark.parametrize("stored", FORMATS)
def test_auto_and_stored_change_nothing(stored: str) -> None:
    for asked in ("auto", "stored"):
        assert decide(asked, FORMATS[stored], 256, outer=False)[0] is None


@pytest.mark.parametrize("asked", ["int8", "int4"])
def test_columns_that_do_not_divide_stay_float(asked: str) -> None:
    target, what = decide(asked, FORMATS["bf16"], 172, outer=False)
    assert target is None
    assert what == "bf16 as stored (172 columns are not a multiple of 32)"
    assert decide("bf16", FORMATS["f32"], 172, outer=False)[0] is FORMATS["bf16"]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("stored", ["f32", "f16", "bf16", "q8_0", "q4_1"])
def test_what_is_made_is_what_quantize_makes(asked: str, stored: str) -> None:
    source = tensor(stored)
    got = Conversion(asked).matrix(source, outer=False)
    if got is source:
        assert decide(asked, source.format, 64, outer=False)[0] is None
        return
    assert got.nbytes == got.data.nbytes == got.data.size
    assert (got.rows, got.columns, got.name) == (6, 64, "w")
    np.testing.assert_array_equal(got.data, quantize(source.dequantize(), got.format.name))
    np.testing.assert_array_equal(got.select_rows(slice(2, 4)).data, got.data[2:4])


def test_a_matrix_larger_than_a_chunk() -> None:
    source = tensor("bf16", rows=3000, columns=320)
    made = Conversion("int8").matrix(source, outer=False)
    np.testing.assert_array_equal(made.data, quantize(source.dequantize(), "q8_0"))


def test_bytes_are_made_when_asked_for_and_again_after_release() -> None:
    made = Conversion("int4").matrix(tensor("f32"), outer=False)
    first = made.data
    assert made.data is first
    made.release()
    again = made.data
    assert again is not first
    np.testing.assert_array_equal(again, first)
    stored = tensor("q8_0")
    stored.release()
    assert stored.data is stored.data


def test_the_label_says_whose_bits_they_are() -> None:
    source = tensor("f32")
    assert format_label(source) == "f32"
    assert format_label(Conversion("int4").matrix(source, outer=False)) == "q4_1:forebay-1"
    assert format_label(Conversion("int4").matrix(tensor("q4_1"), outer=False)) == "q4_1"


@pytest.mark.parametrize(
    ("asked", "stored", "says"),
    [
        ("auto", ["bf16", "bf16"], "as in the file: bf16; auto never changes a model's answers; int8 and int4 take"),
        ("auto", ["q4_1", "q4_1", "q8_0"], "as in the file: q4_1+q8_0"),
        ("stored", ["bf16"], "as in the file: bf16"),
        ("int8", ["f32", "f32"], "2 matrices f32 to q8_0; converted when loaded (method 1)"),
        ("int8", ["q4_1"], "1 matrix q4_1 as stored (no more bits than q8_0)"),
        ("bf16", ["q4_1"], "floats made of quantized values are no more exact than those"),
    ],
)
def test_reasons(asked: str, stored: list[str], says: str) -> None:
    conversion = Conversion(asked)
    for name in stored:
        conversion.matrix(tensor(name), outer=False)
    assert says in conversion.reason()
    assert "\n" not in conversion.reason()


def test_the_reason_names_the_head() -> None:
    conversion = Conversion("int4")
    for _ in range(3):
        conversion.matrix(tensor("bf16"), outer=False)
    conversion.matrix(tensor("bf16"), outer=True)
    wanted = "3 matrices bf16 to q4_1; 1 matrix bf16 to q8_0 (embedding and head keep 8 bits); converted when loaded"
    assert conversion.reason().startswith(wanted)


def test_a_value_that_cannot_be_quantized_names_its_tensor_and_the_remedy() -> None:
    source = tensor("f32")
    source.data.view(np.float32)[3, 5] = np.inf
    made = Conversion("int8").matrix(source, outer=False)
    with pytest.raises(ModelFormatError, match=r"^w holds a value .* serve it with model\.weights = stored") as caught:
        _ = made.data
    assert caught.value.param == "model.weights"


def resident_kib(path: Path) -> int:
    """How much of a mapped file is in this process now."""
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    mine = [part for part in parts if str(path) in part.partition("\n")[0]]
    return sum(int(m[1]) for part in mine for m in re.finditer(r"^Rss: +(\d+) kB", part, re.MULTILINE))


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system has no MADV_DONTNEED")
def test_pages_that_were_converted_are_let_go(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    values = np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)
    path.write_bytes(bytes(100) + values.tobytes())
    file = MappedFile(path)
    source = Tensor("w", FORMATS["f32"], 1024, 1024, file.array(100, values.nbytes).reshape(1024, -1))
    assert (source.dequantize() == values).all()
    assert resident_kib(path) > 4000
    made = ConvertedTensor(source, FORMATS["q8_0"]).data
    assert resident_kib(path) < 100  # the two pages it shares with what is beside it, and what the kernel read around
    np.testing.assert_array_equal(made, quantize(source.dequantize(), "q8_0"))  # they come back
    del source
    file.close()
    gc.collect()


def test_memory_that_is_no_file_is_left_alone() -> None:
    data = np.arange(20000, dtype=np.uint8)
    wanted = data.copy()
    drop_pages(data)
    drop_pages(np.frombuffer(bytes(20000), np.uint8))
    np.testing.assert_array_equal(data, wanted)
