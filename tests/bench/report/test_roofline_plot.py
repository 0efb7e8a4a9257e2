"""The roofline: its points and roofs by hand, and the drawing on the page and as a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from forebay.bench.report.page import render_page
from forebay.bench.report.roofline_plot import Roof, Spot, roofline_plots, roofline_svg, roofs_of, spots_of
from forebay.bench.result import write_result
from forebay.cli import main
from forebay.errors import BenchError
from tests.bench.report import documents

NBSP = "\N{NO-BREAK SPACE}"


def case(op: str, shape: str, **more: Any) -> dict[str, Any]:
    return {"op": op, "format": None, "shape": shape, "backend": "native", "isa": "avx2", "bytes": 1000,
            "operations": 4000, "seconds": 1e-6, **more}  # fmt: skip


def roof(kind: str, **more: Any) -> dict[str, Any]:
    return {"op": "roofline", "isa": "avx2", "threads": 2, "kind": kind, **more}


LIMITS = [
    roof("read", working_set_bytes=2**15, gbps=400.0),
    roof("read", working_set_bytes=2**20, gbps=200.0),
    roof("read", working_set_bytes=2**26, gbps=80.0),
    roof("dot_u8", gops=940.0),
    roof("dot_u4", gops=930.0),
    roof("fma_f32", gops=235.0),
]


def test_a_case_is_operations_over_bytes_and_over_time() -> None:
    """4000 operations, 1000 bytes, a microsecond: 4 a byte, 4 * 10^9 a second."""
    rows = [case("linear", "decode 1", format="q4_1"), case("linear", "prefill 512", seconds=2e-6, isa=None)]
    assert spots_of([*rows, *LIMITS]) == [
        Spot("linear", "linear q4_1, decode 1", 4.0, 4.0, True, "native avx2"),
        Spot("linear", "linear, prefill 512", 4.0, 2.0, False, "native"),
    ]


def test_what_computes_nothing_or_took_no_known_time_has_no_place() -> None:
    hopeless = [case("rows", "decode 1", operations=0), case("add", "decode 1", seconds=None),
                case("add", "decode 1", seconds=float("inf")), case("add", "decode 1", bytes="many")]  # fmt: skip
    assert spots_of(hopeless) == []


def test_roofs_are_the_fastest_and_the_largest_read_and_peaks_that_differ() -> None:
    roofs = roofs_of([case("add", "decode 1"), *LIMITS])
    assert roofs.bandwidths == [Roof(f"400 GB/s, 32{NBSP}KiB", 400.0), Roof(f"80.0 GB/s, 64{NBSP}MiB", 80.0)]
    assert roofs.peaks == [Roof("float32 235 GOP/s", 235.0), Roof("int8 940 GOP/s", 940.0)]
    far = roofs_of([roof("dot_u8", gops=900.0), roof("dot_u4", gops=500.0), roof("read", gbps=20.0)])
    assert far.peaks == [Roof("int8, 4-bit codes 500 GOP/s", 500.0), Roof("int8 900 GOP/s", 900.0)]
    assert far.bandwidths == [Roof("20.0 GB/s", 20.0)]


def test_the_best_of_several_instruction_sets_is_the_roof() -> None:
    slower = [{**row, "isa": "generic", **{k: row[k] / 2 for k in ("gbps", "gops") if k in row}} for row in LIMITS]
    assert roofs_of([*slower, *LIMITS]) == roofs_of(LIMITS)


def test_the_page_has_it_with_a_label_for_each_op() -> None:
    rows = [
        case("linear", "decode 1"),
        case("attention", "decode 8, context 128", operations=900, seconds=5e-6),
        case("rms_norm", "decode 1", operations=100),
        case("logits", "decode 1", operations=50),
        *LIMITS,
    ]
    found = msgspec.structs.replace(documents.ops(), rows=rows)
    text = render_page([found])
    section = text[text.index('id="roofline"') :]
    for said in ("linear, decode 1", "attention, decode 8 at 128", "rms_norm", "logits", "int8 940 GOP/s",
                 f"80.0 GB/s, 64{NBSP}MiB", "operations a byte"):  # fmt: skip
        assert f">{said}" in section, said
    (plot,) = roofline_plots([found])
    assert len(plot.drawings) == 3
    for drawing in plot.drawings:
        assert [
            said for said in ("linear", "attention", "sampling", "others") if f">{said}</text>" not in drawing
        ] == []


def test_kernels_are_told_apart_where_there_are_several() -> None:
    rows = [case("add", "decode 1"), case("add", "decode 1", backend="reference", isa=None, seconds=1e-3), *LIMITS]
    (plot,) = roofline_plots([msgspec.structs.replace(documents.ops(), rows=rows)])
    assert "Marks: circle native avx2, square reference." in plot.text
    assert "add (native avx2)" in plot.drawings[2]
    assert "add (reference)" in plot.drawings[2]


@pytest.mark.parametrize("rows", [[], LIMITS, [case("add", "decode 1")]])
def test_without_cases_or_limits_there_is_none(rows: list[dict[str, Any]]) -> None:
    found = msgspec.structs.replace(documents.ops(), rows=rows)
    assert roofline_plots([found]) == []
    with pytest.raises(BenchError, match="has no ops to draw; name one that `forebay bench ops` wrote"):
        roofline_svg(found)


@pytest.mark.parametrize("value", [1e-11, 1e14, 1e300, -1.0])
@pytest.mark.filterwarnings("error:.*:RuntimeWarning")
def test_extreme_figures_are_drawn_or_left_out(value: float) -> None:
    rows = [case("add", "decode 1"), case("linear", "decode 1", operations=value), case("x", "y", seconds=value),
            roof("read", gbps=value, working_set_bytes=value), roof("fma_f32", gops=value), *LIMITS]  # fmt: skip
    assert "roofline" in render_page([msgspec.structs.replace(documents.ops(), rows=rows)])


def test_the_file_stands_alone_in_light_and_dark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_result(msgspec.structs.replace(documents.ops(), rows=[case("add", "decode 1"), *LIMITS]), tmp_path / "r.json")
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "report", str(tmp_path / "r.json"), "--roofline", str(tmp_path / "r.svg")])
    assert capsys.readouterr().out == ""
    text = (tmp_path / "r.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    style = root.findtext("{http://www.w3.org/2000/svg}style") or ""
    assert "prefers-color-scheme: dark" in style
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    assert used
    assert used <= set(re.findall(r"(--[\w-]+):", style)), "a colour that the file does not define"
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
