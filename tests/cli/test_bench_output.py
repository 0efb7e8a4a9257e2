"""What the bench commands show of a result."""

from __future__ import annotations

import sys

import msgspec
import pytest

from forebay.bench.progress import StepBar
from forebay.cli.bench.output import finish
from tests.bench.report import documents


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")


def test_what_failed_and_what_is_not_known_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = documents.serve()
    assert found.summary is not None
    assert found.reconciled is not None
    changes = {
        "summary": msgspec.structs.replace(found.summary, counted_by={"assumed": 7, "usage": 185}),
        "workload": {"requests": 203},
    }
    finish(msgspec.structs.replace(found, **changes), None, False)
    shown = capsys.readouterr().out
    assert "192 of 200 requests completed, 4 failed (1 timeout, 2 overloaded, 1 cut), 4 cancelled, 3 not sent" in shown
    assert "\noverloaded, the first: 429 the waiting queue is full; retry in 2 s\n" in shown
    assert "\ntimeout, the first: no end after 60 s\n" in shown
    assert "\ntokens of 7 requests are assumed to be one a chunk: the server sent no usage\n" in shown
    assert f"the whole life of {found.reconciled.unmatched} completed requests\n" in shown
    finish(documents.latency(), None, False)
    assert capsys.readouterr().out == ""


def test_the_words_of_a_server_are_shortened_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    found = documents.hostile()
    one, *others = found.runs[0].records
    assert one.failure is not None
    said = msgspec.structs.replace(one.failure, detail="[/red] \x1b[2J\n" + 300 * "x")
    records = (msgspec.structs.replace(one, failure=said), *others)
    summary = msgspec.structs.replace(documents.serve().summary, failures={"cut": 1})
    runs = [msgspec.structs.replace(found.runs[0], records=records)]
    finish(msgspec.structs.replace(found, runs=runs, summary=summary, server=None), None, False)
    shown = capsys.readouterr().out
    assert "cut, the first: [/red] \N{REPLACEMENT CHARACTER}[2J xxx" in shown
    assert f"{'x' * 140}…\n" in shown
    assert "\x1b[2J" not in shown


def test_the_title_of_a_bar_is_no_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with StepBar("text=a[/red].txt", 1) as bar:
        bar.step()
    assert "text=a[/red].txt" in capsys.readouterr().err
