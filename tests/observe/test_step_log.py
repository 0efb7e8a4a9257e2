from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.errors import ProfileError
from forebay.observe.step_log import StepLog, read_step_log
from tests.observe.test_metrics import record


def test_ring_keeps_the_last_and_the_file_keeps_all(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.jsonl", ring_size=3)
    records = [msgspec.structs.replace(record(), step=step) for step in range(5)]
    for one in records:
        log.append(one)
    log.close()
    assert log.last() == records[2:]
    assert log.last(1) == records[4:]
    assert log.last(0) == []
    assert read_step_log(tmp_path / "steps.jsonl") == records


def test_a_file_that_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="name a writable file"):
        StepLog(tmp_path / "missing" / "steps.jsonl")
