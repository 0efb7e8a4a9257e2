from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from forebay.bench.facts import command_line, new_result
from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import LoadFacts, Result, Run, check_writable, read_result, write_result
from forebay.errors import BenchError

LOAD = LoadFacts(wall_s=1.0, client_cores=0.01, target_cores=None, foreign_share=0.0, steal_share=0.0)
FAILED = RequestRecord(
    index=0, intended_ns=1, sent_ns=2, end_ns=3, planned_output_tokens=4, failure=Failure(kind=FailureKind.OVERLOADED)
)


@pytest.mark.parametrize("name", ["result.json", "deep/er/result.json.gz"])
def test_a_result_survives_the_file(tmp_path: Path, name: str) -> None:
    result = new_result("serve", seed=3, loads=[LOAD], runs=[Run(started_ns=5, load=LOAD, records=(FAILED,))])
    write_result(result, tmp_path / name)
    assert read_result(tmp_path / name) == result
    assert result.valid
    assert result.machine["cores"] >= 1
    assert result.versions["forebay"]


def test_what_stands_against_a_result_makes_it_invalid() -> None:
    loud = LoadFacts(wall_s=1.0, client_cores=0.2, target_cores=None, foreign_share=0.5, steal_share=0.0)
    result = new_result("serve", loads=[LOAD, loud, loud], reasons=["the server died"])
    assert not result.valid
    assert [reason.split(" ")[0] for reason in result.invalid_reasons] == ["the", "the", "other"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"kind": "serve"}', b"\x1f\x8b broken", b'{"format": "other"}']
)
def test_a_file_that_is_no_result_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    for name in ("bad.json", "bad.json.gz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BenchError, match=name):
            read_result(tmp_path / name)


@pytest.mark.parametrize("at", range(11, 60))
def test_a_packed_file_that_is_damaged_anywhere_is_a_clear_error(tmp_path: Path, at: int) -> None:
    packed = bytearray(gzip.compress(msgspec.json.encode(new_result("serve"))))
    packed[at : at + 20] = b"\xff" * 20
    (tmp_path / "bad.json.gz").write_bytes(packed)
    with pytest.raises(BenchError, match=r"bad.json.gz"):
        read_result(tmp_path / "bad.json.gz")


def test_a_file_of_endless_depth_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_bytes(b'{"target": ' + b'{"a": ' * 100_000)
    with pytest.raises(BenchError, match=r"deep.json"):
        read_result(tmp_path / "deep.json")


def test_a_label_of_any_bytes_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["forebay", "bench", "--label", "a\udcff"])
    write_result(new_result("serve", label="a\udcff"), tmp_path / "run.json")
    assert read_result(tmp_path / "run.json").label == "a?"
    assert read_result(tmp_path / "run.json").command[-1] == "a?"


def test_another_version_is_refused(tmp_path: Path) -> None:
    write_result(Result(kind="serve", label="", created="", seed=0, version=99), tmp_path / "new.json")
    with pytest.raises(BenchError, match="version 99"):
        read_result(tmp_path / "new.json")


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchError, match="name a writable file"):
        write_result(Result(kind="serve", label="", created="", seed=0), tmp_path / "file" / "result.json")


def test_asking_whether_a_file_can_be_written_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    for name in ("new.json", "deep/er/new.json", "old.json", "link.json"):
        check_writable(tmp_path / name)
    assert {path.name for path in tmp_path.rglob("*.json")} == {"old.json", "link.json"}
    assert (tmp_path / "old.json").read_text() == "old"
    with pytest.raises(BenchError, match="name a writable file"):
        check_writable(tmp_path)


def test_a_secret_on_the_command_line_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["/bin/forebay", "bench", "serve", "--api-key", "sk-1", "--api-key=sk-2", "http://h"]
    monkeypatch.setattr("sys.argv", given)
    assert command_line() == ["forebay", "bench", "serve", "--api-key", "***", "--api-key=***", "http://h"]
