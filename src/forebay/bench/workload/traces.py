"""Traces of real traffic: when requests came and how long they were.

    azure      CSV with TIMESTAMP,ContextTokens,GeneratedTokens (Azure/AzurePublicDataset, LLM inference traces)
    mooncake   JSON lines: timestamp in ms, input_length, output_length, hash_ids of 512-token blocks. An id stands for
               a block and all before it, so equal first ids are a shared prefix (kvcache-ai/Mooncake)
    servegen   JSON lines: timestamp in ms, input_tokens, output_tokens (alibaba/ServeGen)

Files may be packed (.gz). Nothing in them is trusted: sizes are bounded, and an error names its line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, get_args

import msgspec

from forebay.bench.files import UNREADABLE, opened
from forebay.errors import BenchError

TraceKind = Literal["azure", "mooncake", "servegen"]
MAX_TRACE_BYTES = 256 << 20  # unpacked
MAX_LINE_BYTES = 1 << 20
MAX_LINES = 2_000_000
MAX_TOKENS = 10_000_000  # of one request
MAX_SECONDS = 366 * 86_400.0
MOONCAKE_BLOCK = 512  # tokens that one hash id stands for

_AZURE_HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens"


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request. at_s: seconds from the trace's first one. block_ids: of its prompt's blocks, if they are known."""

    at_s: float
    input_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """block_tokens: how many tokens a block id stands for; None: the trace does not know of blocks."""

    kind: TraceKind
    rows: tuple[TraceRow, ...]
    block_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of a trace is replayed, and how.

    window_s: first and last second. limit: most rows. scale_rate: 2 is twice as fast. scale_length: 0.25 is a quarter
    of the tokens. max_input, max_output: longer ones are cut to this. min_input: shorter ones become this long (a chat
    template has tokens of its own). max_model_len: rows that do not fit are left out.
    """

    window_s: tuple[float, float] | None = None
    limit: int | None = None
    scale_rate: float = 1.0
    scale_length: float = 1.0
    max_input: int | None = None
    max_output: int | None = None
    min_input: int = 1
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class Selected:
    """counts: rows "read", "in_window", "clipped", "raised", "dropped" (too long for the model) and "kept"."""

    rows: tuple[TraceRow, ...]
    counts: dict[str, int]
    block_tokens: int | None = None


class _MooncakeLine(msgspec.Struct):
    timestamp: float
    input_length: float
    output_length: float
    hash_ids: list[int]


class _ServeGenLine(msgspec.Struct):
    timestamp: float
    input_tokens: float
    output_tokens: float


def read_trace(path: Path, kind: TraceKind | None = None) -> Trace:
    """Rows in order of time. kind: None finds it out from the first line. BenchError names file, line and value."""
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise BenchError(f"trace {str(path)!r} has no rows; name a trace of kind {', '.join(get_args(TraceKind))}")
    found = kind or _sniffed(first[1], path)
    reader = {"azure": _azure_row, "mooncake": _mooncake_row, "servegen": _servegen_row}[found]
    rows = [] if found == "azure" and first[1].startswith("TIMESTAMP") else [_checked(reader, path, *first)]
    rows.extend(_checked(reader, path, number, line) for number, line in lines)
    if not rows:
        raise BenchError(f"trace {str(path)!r} has a header and no rows")
    rows.sort(key=lambda row: row.at_s)
    start = rows[0].at_s
    if rows[-1].at_s - start > MAX_SECONDS:
        raise BenchError(
            f"trace {str(path)!r} spans {rows[-1].at_s - start:.0f} s, more than a year; correct its times"
        )
    return Trace(
        found,
        tuple(replace(row, at_s=row.at_s - start) for row in rows),
        MOONCAKE_BLOCK if found == "mooncake" else None,
    )


def select_rows(trace: Trace, choice: Selection) -> Selected:
    """The rows that are replayed, at times from the window's beginning. BenchError if none is left."""
    start, end = choice.window_s or (0.0, math.inf)
    block = trace.block_tokens and max(1, round(trace.block_tokens * choice.scale_length))
    counts = {"read": len(trace.rows), "in_window": 0, "clipped": 0, "raised": 0, "dropped": 0}
    kept: list[TraceRow] = []
    for row in trace.rows:
        if not start <= row.at_s < end:
            continue
        if choice.limit is not None and len(kept) >= choice.limit:
            break
        counts["in_window"] += 1
        scaled = _scaled(row, trace.block_tokens, block, choice)
        clipped = _clipped(scaled, block, choice)
        counts["clipped"] += clipped != scaled
        if clipped.input_tokens < choice.min_input:
            counts["raised"] += 1
            clipped = replace(clipped, input_tokens=choice.min_input)
        if choice.max_model_len is not None and clipped.input_tokens + clipped.output_tokens > choice.max_model_len:
            counts["dropped"] += 1
        else:
            kept.append(replace(clipped, at_s=(clipped.at_s - start) / choice.scale_rate))
    if not kept:
        raise BenchError(
            f"no row of the trace is left: {counts['read']} read, {counts['in_window']} in the window, "
            f"{counts['dropped']} longer than max_model_len {choice.max_model_len}; widen window, lower scale_length "
            "or set max_input"
        )
    return Selected(tuple(kept), counts | {"kept": len(kept)}, block)


def parse_window(text: str) -> tuple[float, float]:
    """ "0:600" -> the first ten minutes."""
    try:
        start, end = (float(part) for part in text.split(":"))
    except ValueError:
        start, end = math.nan, math.nan
    if not 0 <= start < end <= MAX_SECONDS:
        raise BenchError(f"window {text!r} must be two rising numbers of seconds such as 0:600")
    return start, end


def _scaled(row: TraceRow, block: int | None, scaled_block: int | None, choice: Selection) -> TraceRow:
    output = max(1, round(row.output_tokens * choice.scale_length))
    if block is None or scaled_block is None:
        return replace(row, input_tokens=max(1, round(row.input_tokens * choice.scale_length)), output_tokens=output)
    before = len(row.block_ids) - 1  # whole blocks keep one length, the last has what is left
    last = round((row.input_tokens - before * block) * choice.scale_length)
    return replace(row, input_tokens=before * scaled_block + min(max(1, last), scaled_block), output_tokens=output)


def _clipped(row: TraceRow, block: int | None, choice: Selection) -> TraceRow:
    length = min(row.input_tokens, choice.max_input or row.input_tokens)
    ids = row.block_ids if block is None else row.block_ids[: -(-length // block)]
    output = min(row.output_tokens, choice.max_output or row.output_tokens)
    return replace(row, input_tokens=length, output_tokens=output, block_ids=ids)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not empty."""
    total = 0
    try:
        with opened(path) as file:
            for number in itertools.count(1):
                line = file.readline(MAX_LINE_BYTES + 1)
                if not line:
                    return
                total += len(line)
                if len(line) > MAX_LINE_BYTES or total > MAX_TRACE_BYTES or number > MAX_LINES:
                    raise BenchError(f"trace {str(path)!r} line {number}: too large; this is no trace")
                if text := line.decode("utf-8-sig" if number == 1 else "utf-8").strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise BenchError(f"trace {str(path)!r} line {number}: not UTF-8 text; name a trace file") from error
    except UNREADABLE as error:
        raise BenchError(f"trace {str(path)!r} cannot be read: {error}; name a readable trace file") from error


def _sniffed(line: str, path: Path) -> TraceKind:
    if line.replace(" ", "") == _AZURE_HEAD:
        return "azure"
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        keys = {}
    if "input_length" in keys:
        return "mooncake"
    if "input_tokens" in keys:
        return "servegen"
    raise BenchError(
        f"trace {str(path)!r} line 1: of no known kind: {line[:60]!r}; kinds are {', '.join(get_args(TraceKind))}"
    )


def _checked(reader: Callable[[str], TraceRow], path: Path, number: int, line: str) -> TraceRow:
    try:
        row = reader(line)
        _check(row)
        return row
    except (ValueError, OverflowError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise BenchError(f"trace {str(path)!r} line {number}: {error}; correct the line or leave it out") from error


def _check(row: TraceRow) -> None:
    if not math.isfinite(row.at_s):
        raise ValueError(f"time {row.at_s!r} is no number")
    for name, value in (("input", row.input_tokens), ("output", row.output_tokens)):
        if not 1 <= value <= MAX_TOKENS:
            raise ValueError(f"{name} tokens must be from 1 to {MAX_TOKENS}, got {value}")


def _azure_row(line: str) -> TraceRow:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != 3:
        raise ValueError(f"{len(fields)} fields instead of {_AZURE_HEAD}")
    moment = datetime.fromisoformat(fields[0])
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return TraceRow(
        (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1), _whole(fields[1]), _whole(fields[2])
    )


def _mooncake_row(line: str) -> TraceRow:
    read = msgspec.json.decode(line, type=_MooncakeLine)
    row = TraceRow(
        _seconds(read.timestamp), _whole(read.input_length), _whole(read.output_length), tuple(read.hash_ids)
    )
    needed = -(-row.input_tokens // MOONCAKE_BLOCK)
    if len(row.block_ids) != needed:
        raise ValueError(f"{len(row.block_ids)} hash_ids, but {row.input_tokens} tokens are {needed} blocks")
    return row


def _servegen_row(line: str) -> TraceRow:
    read = msgspec.json.decode(line, type=_ServeGenLine)
    return TraceRow(_seconds(read.timestamp), _whole(read.input_tokens), _whole(read.output_tokens))


def _seconds(milliseconds: float) -> float:
    if not 0 <= milliseconds <= MAX_SECONDS * 1000:
        raise ValueError(f"timestamp must be from 0 to {MAX_SECONDS * 1000:.0f} ms, got {milliseconds!r}")
    return milliseconds / 1000


def _whole(value: str | float) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError(f"{value!r} is no whole number of tokens")
    return int(number)
