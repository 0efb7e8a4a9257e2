"""`forebay bench serve` against a real server, from the command line to the document."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.bench.metrics import summarize
from forebay.bench.reconcile import STRETCHES
from forebay.bench.result import Result, read_result
from forebay.bench.server_process import ServerProcess
from forebay.observe.recorder import read_record
from tests.bench.profiles import tiny_profile
from tests.support.fake_openai import FakeServer, fail, fake_server, script
from tests.support.server_process import eventually
from tests.support.tiny_chat import tiny_chat_model

BENCH = [sys.executable, "-m", "forebay.cli", "bench", "serve"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tiny_profile(**{"model.source": str(model)})) as running:
        yield running


def bench(server: ServerProcess | FakeServer, model: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*BENCH, server.url, "--tokenizer", str(model), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def measured(server: ServerProcess, model: Path, folder: Path, *arguments: str) -> Result:
    done = bench(server, model, "--output", str(folder / "run.json"), *arguments)
    assert done.returncode == 0, done.stderr
    return read_result(folder / "run.json")


def test_what_was_asked_for_is_what_was_sent_and_counted(server: ServerProcess, model: Path, tmp_path: Path) -> None:
    result = measured(server, model, tmp_path, "-c", "3", "-n", "9", "--input-tokens", "20", "--output-tokens", "6",
                      "--repeat", "2", "--slo", "ttft:60s")  # fmt: skip
    summary = result.summary
    assert summary is not None
    assert (summary.requests, summary.completed, summary.prompt_tokens, summary.output_tokens) == (18, 18, 360, 108)
    assert (summary.slo_attained, summary.cached_tokens) == (1.0, 0)
    assert result.workload["runs"] == 2
    assert result.target["profile"] == result.target["profile"].lower()
    assert result.target["answer_class"].startswith("reference/")
    every = [record for run in result.runs for record in run.records]
    assert {record.prompt_tokens for record in every} == {20}
    assert {record.counted_by for record in every} <= {"usage", "spread"}


def test_the_figures_follow_from_the_records(server: ServerProcess, model: Path, tmp_path: Path) -> None:
    result = measured(server, model, tmp_path, "-c", "2", "-n", "6", "--input-tokens", "12", "--output-tokens", "5")
    assert summarize([run.records for run in result.runs], seed=result.seed) == result.summary


def test_the_servers_own_record_is_laid_beside(server: ServerProcess, model: Path, tmp_path: Path) -> None:
    result = measured(server, model, tmp_path, "-c", "2", "-n", "6", "--input-tokens", "12", "--output-tokens", "5",
                      "--seed", "7", "--server-record", str(server.record))  # fmt: skip
    assert result.summary is not None
    assert result.server is not None
    assert result.reconciled is not None
    assert result.steps is not None
    assert (result.reconciled.matched, result.reconciled.unmatched) == (6, 0)
    assert list(result.reconciled.stretches) == list(STRETCHES)
    assert result.server.output_tokens == result.summary.output_tokens == 30
    assert result.server.ttft_s is not None
    assert result.summary.ttft_s is not None
    assert result.server.ttft_s.mean < result.summary.ttft_s.mean  # the way there and back is on top
    # steps within the run only: those of the warm-up are in the record, too
    steps = len(result.steps.start_s)
    assert 0 < steps < len(read_record(server.record).steps)
    assert sum(result.steps.prefill_tokens) == 72


@pytest.mark.parametrize(("content", "words"), [("", "none of these requests"), ("hello\n", "damaged in line 1")])
def test_a_record_that_is_none_costs_no_measurement(
    server: ServerProcess, model: Path, tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "record.jsonl").write_text(content)
    result = measured(server, model, tmp_path, "-c", "1", "-n", "2", "--input-tokens", "12", "--output-tokens", "5",
                      "--seed", "21", "--server-record", str(tmp_path / "record.jsonl"))  # fmt: skip
    assert result.summary is not None
    assert result.summary.completed == 2
    assert any(words in reason for reason in result.invalid_reasons)


def test_prompts_that_the_server_knows_already_make_it_invalid(
    server: ServerProcess, model: Path, tmp_path: Path
) -> None:
    arguments = ("-c", "2", "-n", "4", "--input-tokens", "40", "--output-tokens", "2", "--seed", "11")
    first, again = (measured(server, model, tmp_path, *arguments) for _ in range(2))
    assert not any("prefix cache" in reason for reason in first.invalid_reasons)
    assert any("give another --seed" in reason for reason in again.invalid_reasons)
    shared = measured(server, model, tmp_path, *arguments, "--shared-prefix", "16")
    assert not any("prefix cache" in reason for reason in shared.invalid_reasons)


def test_conversations_have_history_and_shared_prefixes(server: ServerProcess, model: Path, tmp_path: Path) -> None:
    result = measured(server, model, tmp_path, "-c", "2", "-n", "4", "--endpoint", "chat", "--turns", "3",
                      "--input-tokens", "8", "--output-tokens", "4")  # fmt: skip
    (run,) = result.runs
    assert [record.turn for record in sorted(run.records, key=lambda r: r.index)] == [0, 1, 2] * 4
    for first, second, third in zip(*[iter(sorted(run.records, key=lambda r: r.index))] * 3, strict=True):
        assert first.prompt_tokens < second.prompt_tokens < third.prompt_tokens  # type: ignore[operator]  # usage says
    assert result.summary is not None
    assert result.summary.cached_tokens > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", "2", "--arrivals", "poisson:4"], "exclude each other"),
        (["--arrivals", "sometimes:4"], "sometimes"),
        (["-c", "2", "--slo", "speed:1ms"], "speed"),
        (["-c", "2", "--model", "gpt-4"], "gpt-4"),
        (["-c", "2", "--trace", "no/such/file.csv"], "file.csv"),
        (["-c", "2", "--input-tokens", "5000"], "5000"),
        (["-c", "2", "--output", "/dev/null/run.json"], "writable file"),
        (["-c", "2", "--server-record", "no/such/record"], "--server-record no/such/record cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_one_clear_line(
    server: ServerProcess, model: Path, arguments: list[str], words: str
) -> None:
    done = bench(server, model, *arguments)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr


def test_a_server_that_is_not_there_is_one_clear_line(server: ServerProcess, model: Path) -> None:
    command = [*BENCH, "http://127.0.0.1:9", "-c", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "is the server up?" in done.stderr


def test_what_the_server_said_first_and_how_much_was_not_sent_is_shown(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["-c", "2", "-n", "4", "--endpoint", "chat", "--turns", "3", "--input-tokens", "8", "--warmup", "0"]
    with fake_server({"fake": script(fail(500, "no luck [/red]"))}) as broken:
        done = bench(broken, model, *arguments)
    assert done.returncode == 0, done.stderr
    assert "0 of 4 requests completed, 4 failed (4 server_error), 8 not sent" in done.stdout
    assert "server_error, the first: 500" in done.stdout
    assert "no luck [/red]" in done.stdout


def test_ctrl_c_is_one_line_and_leaves_no_file(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background process would ignore it
    with fake_server({}, "--ttft", "600") as slow:
        command = [*BENCH, slow.url, "--tokenizer", str(model), "-c", "2", "-o", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        signal.signal(signal.SIGINT, before)
        assert eventually(lambda: bool(slow.requests("fake")), within_s=60)
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=30)
    assert (process.returncode, shown, errors) == (130, "", "forebay: interrupted; nothing was written\n")
    assert not file.exists()
