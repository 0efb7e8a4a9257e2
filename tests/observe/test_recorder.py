from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.errors import ProfileError
from forebay.observe.recorder import Recorder, RequestLine, read_record
from tests.observe.test_metrics import LIFE, record

STEPS = [msgspec.structs.replace(record(), step=step) for step in range(5)]
REST = msgspec.structs.replace(record(), num_requests=0)
REQUEST = RequestLine(
    request_id="r", child_index=0, reason="stop", num_prompt_tokens=3, num_cached_tokens=0, events=LIFE
)


def test_ring_keeps_the_last_and_the_file_keeps_all(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "record.jsonl", ring_size=3)
    for step in STEPS:
        recorder.step(step)
    recorder.request(REQUEST)
    recorder.close()
    assert recorder.last() == STEPS[2:]
    assert recorder.last(1) == STEPS[4:]
    assert recorder.last(0) == []
    found = read_record(tmp_path / "record.jsonl")
    assert (found.steps, found.requests) == (STEPS, [REQUEST])


def test_an_engine_at_rest_has_written_everything(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "record.jsonl")
    recorder.step(STEPS[0])
    recorder.request(REQUEST)
    recorder.step(REST)
    found = read_record(tmp_path / "record.jsonl")
    recorder.close()
    assert (found.steps, found.requests) == (STEPS[:1], [REQUEST])


def test_a_line_that_is_being_written_is_left_out_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorder = Recorder(path)
    recorder.step(STEPS[0])
    recorder.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert read_record(path).steps == STEPS[:1]
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(ProfileError, match="damaged in line 2"):
        read_record(path)


def test_a_file_that_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="name a writable file"):
        Recorder(tmp_path / "missing" / "record.jsonl")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_record(tmp_path / "missing")
