"""Readers of real traces, what is taken from them, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.bench.workload import traces
from forebay.bench.workload.traces import Selection, Trace, TraceRow, parse_window, read_trace, select_rows
from forebay.errors import BenchError
from tests.support.shared import shared_path

AZURE_HEAD = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


@pytest.fixture(scope="module")
def mooncake() -> Trace:
    return read_trace(shared_path("traces/mooncake/conversation_trace.jsonl.gz"))


def written(folder: Path, data: bytes, name: str = "trace.jsonl") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def lines(*rows: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def mooncake_line(**changed: Any) -> bytes:
    return lines({"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]} | changed)


def servegen_line(**changed: Any) -> bytes:
    return lines({"timestamp": 5, "input_tokens": 600.0, "output_tokens": 7} | changed)


@pytest.mark.parametrize(
    ("name", "kind", "rows", "last_s", "input_sum", "output_sum"),
    [
        ("azure2023/conv.csv", "azure", 19_366, 3501.721937, 22_361_870, 4_088_665),
        ("mooncake/conversation_trace.jsonl.gz", "mooncake", 12_031, 3536.999, 144_793_823, 4_122_048),
        ("servegen/deepseek_r1_20min_2rps.jsonl.gz", "servegen", 2_982, 1199.972, 4_496_514, 3_145_043),
    ],
)
def test_real_traces_are_read_whole(
    name: str, kind: str, rows: int, last_s: float, input_sum: int, output_sum: int
) -> None:
    trace = read_trace(shared_path(f"traces/{name}"))
    assert trace.kind == kind
    assert len(trace.rows) == rows
    assert trace.rows[0].at_s == 0
    assert trace.rows[-1].at_s == pytest.approx(last_s, abs=1e-3)
    assert sum(row.input_tokens for row in trace.rows) == input_sum
    assert sum(row.output_tokens for row in trace.rows) == output_sum


def test_a_row_of_each_kind_means_what_its_columns_say(tmp_path: Path) -> None:
    azure = b"2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n"
    trace = read_trace(written(tmp_path, AZURE_HEAD + azure))
    assert trace.rows[0] == TraceRow(0.0, 374, 44)
    assert trace.rows[1].at_s == pytest.approx(4.314579, abs=2e-6)
    with_zone = b"2024-05-10 00:00:00.5+00:00,3,4\n2024-05-10 02:00:01.5+02:00,5,6\n"
    assert read_trace(written(tmp_path, AZURE_HEAD + with_zone)).rows == (TraceRow(0.0, 3, 4), TraceRow(1.0, 5, 6))
    assert read_trace(written(tmp_path, mooncake_line())).rows == (TraceRow(0.0, 600, 7, (1, 2)),)
    assert read_trace(written(tmp_path, mooncake_line())).block_tokens == 512
    assert read_trace(written(tmp_path, servegen_line())).rows == (TraceRow(0.0, 600, 7),)


def test_rows_are_put_in_order_and_counted_from_the_first(tmp_path: Path) -> None:
    rows = [{"timestamp": at, "input_tokens": at, "output_tokens": 1} for at in (3000, 1000, 2000)]
    trace = read_trace(written(tmp_path, lines(*rows)))
    assert [(row.at_s, row.input_tokens) for row in trace.rows] == [(0, 1000), (1, 2000), (2, 3000)]


def test_a_kind_that_is_given_needs_no_header(tmp_path: Path) -> None:
    path = written(tmp_path, b"2023-11-16 18:15:46,374,44\n")
    assert read_trace(path, "azure").rows == (TraceRow(0.0, 374, 44),)
    with pytest.raises(BenchError, match=r"line 1: of no known kind: '2023.*; kinds are azure, mooncake, servegen"):
        read_trace(path)


HOSTILE: list[tuple[bytes, str]] = [
    (mooncake_line(timestamp=-1), "line 2: timestamp must be from 0"),
    (mooncake_line(timestamp=1e300), "line 2: timestamp must be from 0"),
    (mooncake_line(input_length=0, hash_ids=[]), "line 2: input tokens must be from 1 to 10000000, got 0"),
    (mooncake_line(input_length=-5, hash_ids=[]), "line 2: input tokens must be"),
    (mooncake_line(output_length=10**9), "line 2: output tokens must be"),
    (mooncake_line(input_length=600.5), "line 2: 600.5 is no whole number"),
    (mooncake_line(hash_ids=[1]), "line 2: 1 hash_ids, but 600 tokens are 2 blocks"),
    (mooncake_line(hash_ids=[1, 2, 3]), "line 2: 3 hash_ids"),
    (mooncake_line(hash_ids=["a", "b"]), "line 2: .*Expected `int`"),
    (mooncake_line(hash_ids=None), "line 2: .*Expected `array`"),
    (mooncake_line(output_length="7"), "line 2: .*Expected `float`"),
    (b'{"timestamp": 5}', "line 2: .*missing required field"),
    (b'{"timestamp": NaN}', "line 2: .*JSON is malformed"),
    (b"[" * 100_000, "line 2: "),
    (b"[1, 2]", "line 2: .*Expected `object`"),
    (b"\xff\xfe", "line 2: not UTF-8"),
    (b'{"timestamp": 5, "input_length": 1e999, "output_length": 7, "hash_ids": [1]}', "line 2: "),
    (b" " * (traces.MAX_LINE_BYTES + 1), "line 2: too large"),
]


@pytest.mark.parametrize(("line", "words"), HOSTILE)
def test_hostile_lines_are_refused_by_number(tmp_path: Path, line: bytes, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        read_trace(written(tmp_path, mooncake_line() + b"\n" + line + b"\n"))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"2023-11-16 18:15:46,374", "line 2: 2 fields"),
        (b"2023-11-16 18:15:46,374,44,9", "line 2: 4 fields"),
        (b"yesterday,374,44", "line 2: .*yesterday"),
        (b"2023-11-16 18:15:46,many,44", "line 2: .*many"),
        (b"2023-11-16 18:15:46,nan,44", "line 2: 'nan' is no whole number"),
        (b"2023-11-16 18:15:46,inf,44", "line 2: 'inf' is no whole number"),
        (b"2023-11-16 18:15:46,374,-44", "line 2: output tokens must be"),
        (b"2023-11-16 18:15:46,374,44\n1999-11-16 18:15:46,374,44", "more than a year"),
    ],
)
def test_hostile_rows_of_a_csv_are_refused_by_number(tmp_path: Path, row: bytes, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        read_trace(written(tmp_path, AZURE_HEAD + row))


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "none.jsonl", "none.jsonl' cannot be read"),
        (tmp_path, "cannot be read"),
        (written(tmp_path, b"", "empty"), "has no rows"),
        (written(tmp_path, b"\n \n\n", "blank"), "has no rows"),
        (written(tmp_path, AZURE_HEAD, "head"), "has a header and no rows"),
        (written(tmp_path, b'{"a": 1}', "other"), "line 1: of no known kind"),
        (written(tmp_path, b"\x1f\x8bnot packed", "bad.gz"), "cannot be read"),
        (written(tmp_path, gzip.compress(mooncake_line() * 999)[:-9], "cut.gz"), "cut.gz' "),
    ):
        with pytest.raises(BenchError, match=words):
            read_trace(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(st.binary(max_size=200), st.text('{}[]":,0123456789eE.-+naNtimestmpu_okghd').map(str.encode)),
    st.sampled_from(["azure", "mooncake", "servegen", None]),
)
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes, kind: Any) -> None:
    try:
        assert read_trace(written(tmp_path, data), kind).rows
    except BenchError as error:
        assert "trace.jsonl" in error.message  # noqa: PT017 (either way is right)


def rows_of(*lengths: tuple[int, int], blocks: int | None = None) -> Trace:
    ids = iter(range(10_000))
    rows = (
        TraceRow(float(at), new, out, tuple(next(ids) for _ in range(-(-new // 512))) if blocks else ())
        for at, (new, out) in enumerate(lengths)
    )
    return Trace("mooncake" if blocks else "servegen", tuple(rows), blocks)


def test_windows_limits_and_rates() -> None:
    trace = rows_of(*[(10 + i, 5) for i in range(100)])
    chosen = select_rows(trace, Selection(window_s=(20, 40), limit=15, scale_rate=4))
    assert [row.input_tokens for row in chosen.rows] == list(range(30, 45))
    assert [row.at_s for row in chosen.rows] == [i / 4 for i in range(15)]
    assert chosen.counts == {"read": 100, "in_window": 15, "clipped": 0, "raised": 0, "dropped": 0, "kept": 15}


def test_what_is_clipped_raised_or_dropped_is_counted() -> None:
    trace = rows_of((5, 5), (50, 5), (500, 5), (50, 500), (400, 400))
    choice = Selection(max_input=300, max_output=350, min_input=20, max_model_len=640)
    chosen = select_rows(trace, choice)
    assert [(row.input_tokens, row.output_tokens) for row in chosen.rows] == [(20, 5), (50, 5), (300, 5), (50, 350)]
    assert chosen.counts == {"read": 5, "in_window": 5, "clipped": 3, "raised": 1, "dropped": 1, "kept": 4}


def test_scaled_lengths_are_at_least_one() -> None:
    chosen = select_rows(rows_of((1, 1), (10, 3), (1000, 400)), Selection(scale_length=0.25))
    assert [(row.input_tokens, row.output_tokens) for row in chosen.rows] == [(1, 1), (2, 1), (250, 100)]


def test_scaled_blocks_stay_blocks() -> None:
    trace = rows_of((512, 8), (513, 8), (1500, 8), blocks=512)
    chosen = select_rows(trace, Selection(scale_length=0.25))
    assert chosen.block_tokens == 128
    assert [(row.input_tokens, len(row.block_ids)) for row in chosen.rows] == [(128, 1), (129, 2), (375, 3)]
    clipped = select_rows(trace, Selection(scale_length=0.25, max_input=256))
    assert [(row.input_tokens, len(row.block_ids)) for row in clipped.rows] == [(128, 1), (129, 2), (256, 2)]


@pytest.mark.parametrize("scale", [0.001, 0.03, 0.25, 1.0, 1.7])
def test_every_row_has_the_blocks_of_its_length_at_every_scale(mooncake: Trace, scale: float) -> None:
    chosen = select_rows(mooncake, Selection(scale_length=scale, limit=500))
    assert chosen.block_tokens == max(1, round(512 * scale))
    for row in chosen.rows:
        assert len(row.block_ids) == -(-row.input_tokens // chosen.block_tokens)


def test_when_nothing_is_left_the_reasons_are_named() -> None:
    with pytest.raises(BenchError, match=r"2 read, 2 in the window, 2 longer than max_model_len 10; widen window"):
        select_rows(rows_of((10, 1), (20, 1)), Selection(max_model_len=10))


def test_windows_are_read_or_refused() -> None:
    assert parse_window("0:600") == (0, 600)
    assert parse_window("1.5:2e3") == (1.5, 2000)
    for text in ("", "600", "5:5", "9:1", "-1:5", "a:b", "0:nan", "0:inf", "1:2:3"):
        with pytest.raises(BenchError, match="two rising numbers of seconds"):
            parse_window(text)
