"""forebay bench offline, latency, startup, sweep and compare: what their command lines mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay.bench.facts import new_result
from forebay.bench.metrics import shifted, summarize
from forebay.bench.record import RequestRecord
from forebay.bench.result import LoadFacts, Run, read_result, write_result
from forebay.cli import main
from tests.support.shared import shared_path

QUIET = LoadFacts(wall_s=1.0, client_cores=0.0, target_cores=1.0, foreign_share=0.0, steal_share=0.0)
SECOND = 10**9


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "200")
    return [str(shared_path("models/stories260K/hf")), "--backend", "reference", "--max-model-len", "128"]


def run(*arguments: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments])
    return int(ended.value.code or 0)


def document(path: Path, label: str, pace: float) -> str:
    """Three runs of four requests one after the other; `pace`: how long they take."""
    runs = []
    for number in range(3):
        took = int(pace * (1 + 0.01 * number) * SECOND)
        records = tuple(
            RequestRecord(
                index=i, intended_ns=i * took, sent_ns=i * took, token_ns=(i * took + took // 2, (i + 1) * took),
                token_counts=(1, 1), end_ns=(i + 1) * took, planned_output_tokens=2, output_tokens=2, prompt_tokens=3,
                output_digest=f"{i}",
            )
            for i in range(4)
        )  # fmt: skip
        runs.append(Run(started_ns=100 * number * SECOND + int(pace * SECOND), load=QUIET, records=records))
    summary = summarize([[shifted(record, 0) for record in run.records] for run in runs])
    spec = {"digest": "d", "spec": {"concurrency": 1}}
    write_result(new_result("serve", label=label, workload=spec, summary=summary, runs=runs), path)
    return str(path)


def test_offline_writes_what_it_shows(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "offline.json.gz"
    code = run("offline", *tiny, "-n", "4", "-c", "2", "--input-tokens", "16", "--output-tokens", "3", "-o", str(file))
    shown = capsys.readouterr()
    assert code == 0
    assert "4 of 4 requests completed" in shown.out
    result = read_result(file)
    assert (result.kind, result.workload["requests"], result.workload["spec"]["concurrency"]) == ("offline", 4, 2)
    assert shown.err == ""  # no bar where nobody looks


def test_latency_as_json(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("latency", *tiny, "--lengths", "8,32", "--output-tokens", "3", "--repeat", "1", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["length"] for row in printed["rows"]] == [8, 32]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["offline", "--arrivals", "poisson:1", "-n", "2", "--input-tokens", "16", "--output-tokens", "4"],
            "closed loop only",
        ),
        (["latency", "--lengths", "8,x"], "--lengths must be numbers"),
        (["latency", "--lengths", "1000"], "do not fit the context length 128"),
        (["sweep", "--set", "kv.blok_size=8,16", "-c", "1"], "did you mean 'kv.block_size'"),
        (["sweep", "--find-rate"], "needs --slo"),
        (["sweep", "--vary", "nothing=1,2", "-c", "1"], "no part of the load"),
        (["sweep", "--url", "http://127.0.0.1:9", "--set", "kv.block_size=8,16", "-c", "1"], "keeps its profile"),
    ],
)
def test_wrong_command_lines(
    tiny: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments[0], *tiny, *arguments[1:]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


FIND = ["--find-rate", "--slo", "ttft:1s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-c", "1", "--vary", "output=2,x"], "output 'x': 'x' is no length"),
        (["-c", "1", "--vary", "text=/no/such/file"], "text '/no/such/file' cannot be read"),
        (["-c", "1", "--timeout", "inf"], "timeout_s=inf must be above 0 and at most 2592000"),
        ([*FIND, "--attain", "2"], "--attain must be a number from 1e-06 to 1, got 2.0"),
        ([*FIND, "--start-rate", "nan"], "--start-rate must be a number from 1e-06 to 1e+06, got nan"),
        ([*FIND, "--width", "0"], "--width must be a number from 1e-06 to 1, got 0.0"),
        ([*FIND, "--probe-seconds", "1e9"], "--probe-seconds must be a number from 0.1 to 86400, got 1000000000.0"),
    ],
)
def test_a_sweep_is_checked_before_its_first_server_starts(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", "no-such-model", *arguments) == 2
    assert capsys.readouterr().err.startswith(f"forebay: {message}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "http://127.0.0.1:9", "-c", "1"],
        ["sweep", "--url", "http://127.0.0.1:9", "-c", "1"],
        ["compare", "set:model.source=no-such-model", "http://127.0.0.1:9"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_key_that_cannot_be_sent_is_found_before_anything_starts(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "two words")
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert said == "forebay: api_key (--api-key or OPENAI_API_KEY) must be visible ASCII characters\n"


def test_an_slo_that_no_rate_holds_is_a_result(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--input-tokens", "8", "--output-tokens", "2", "--warmup", "0"]
    search = ["--find-rate", "--slo", "ttft:1us", "--start-rate", "50", "--probe-seconds", "0.1"]
    assert run("sweep", *tiny, *load, *search, "-o", str(tmp_path / "s.json")) == 0
    assert "as it is: the SLO cannot be held at any rate\n" in capsys.readouterr().out
    (row,) = read_result(tmp_path / "s.json").rows
    assert (row["rate"], row["invalid_reasons"][0]) == (None, "the SLO cannot be held at any rate")


def test_a_setting_with_one_value_is_fixed_and_one_with_several_is_a_knob(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["-n", "2", "-c", "1", "--input-tokens", "16", "--output-tokens", "2", "--warmup", "0"]
    sets = ["--set", "kv.block_size=8", "--set", "scheduler.max_requests=4,0"]
    assert run("sweep", *tiny, *load, *sets, "-o", str(tmp_path / "s.json")) == 2  # 0 is not allowed: nothing starts
    assert "scheduler.max_requests must be" in capsys.readouterr().err
    sets[-1] = "kv.prefix_cache=false"
    assert run("sweep", *tiny, *load, *sets, "-o", str(tmp_path / "s.json")) == 0
    result = read_result(tmp_path / "s.json")
    assert [row["knobs"] for row in result.rows] == [{"concurrency": 1}]
    assert result.target["settings"]["kv.block_size"] == 8
    assert result.target["settings"]["kv.prefix_cache"] is False


def test_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = document(tmp_path / "a.json", "quick", 1.0)
    slow = document(tmp_path / "b.json", "slow", 2.0)
    assert run("compare", quick, slow, "-o", str(tmp_path / "c.json")) == 0
    shown = capsys.readouterr().out
    assert "by output_token_rate, B is: slower" in shown
    assert "same answers: 12 of 12" in shown
    assert read_result(tmp_path / "c.json").target["headline"] == "output_token_rate"
    assert run("compare", quick, slow, "--fail-if-slower") == 1
    assert run("compare", slow, quick, "--fail-if-slower") == 0
    assert run("compare", quick, quick, "--fail-if-slower") == 0


def test_no_word_of_a_user_is_taken_for_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    files = [document(tmp_path / name, "[/red]\x1b[2J", 1.0) for name in ("a.json", "b.json")]
    for path in map(Path, files):
        found = read_result(path)
        runs = [msgspec.structs.replace(one, values={"x[/b]_s": 1.0}) for one in found.runs]
        write_result(msgspec.structs.replace(found, runs=runs, summary=None), path)
    output = tmp_path / "x[/red].json"
    assert run("compare", *files, "-o", str(output)) == 0
    shown = capsys.readouterr().out
    assert "A: [/red]\N{REPLACEMENT CHARACTER}[2J\n" in shown
    assert "x[/b]_s" in shown
    assert f"written to {output};" in shown
    assert read_result(output).kind == "compare"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("x.json", "set:", "give two .json files, or none"),
        ("x.json", "y.json", "'x.json' cannot be read"),
        ("nonsense", "set:", "'nonsense' is nothing to compare"),
        ("none.toml", "set:", "cannot read profile none.toml"),
        ("set:kv.blok_size=8", "set:", "did you mean 'kv.block_size'"),
        ("http://127.0.0.1:9", "set:", "does not answer"),
    ],
)
def test_sides_that_are_none(a: str, b: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", a, b) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_sides_are_what_they_say(tmp_path: Path) -> None:
    from forebay.bench.served import Server
    from forebay.cli.bench.compare import _side
    from forebay.profile import load_profile

    base: Any = load_profile(None, {"source": "base", "kv.block_size": 32})
    (tmp_path / "p.toml").write_text("[kv]\nblock_size = 8\n")
    changed = _side("set:token_budget=128,kv.prefix_cache=false", base, None, None, None)
    assert changed == load_profile(
        None, {"source": "base", "kv.block_size": 32, "token_budget": 128, "prefix_cache": False}
    )
    assert _side("set:", base, None, None, None) == base
    assert _side(str(tmp_path / "p.toml"), base, "mine", None, None) == load_profile(
        None, {"source": "mine", "kv.block_size": 8}
    )
    assert _side("https://host/v1", base, "m", "tok", "key") == Server(
        url="https://host/v1", model="m", tokenizer="tok", api_key="key"
    )
