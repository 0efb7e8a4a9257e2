"""The summary for a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from forebay.bench.report.markdown import code, render_markdown
from forebay.bench.result import Result
from forebay.errors import BenchError
from tests.bench.report import documents


def tables(text: str) -> list[list[list[str]]]:
    """Every table as rows of cells; a pipe behind a backslash is no border."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def well_formed(text: str) -> None:
    assert tables(text)
    for table in tables(text):
        assert {len(row) for row in table} == {len(table[0])}, table[0]
        assert all(re.fullmatch(r":?-{3,}:?", cell) for cell in table[1])
    assert text.count("<details>") == text.count("</details>") >= 1
    assert "\n\n\n" not in text


def test_one_result_is_a_table_of_metric_value_and_interval() -> None:
    text = render_markdown([documents.serve()])
    well_formed(text)
    first = tables(text)[0]
    assert first[0] == ["metric", "value", "95 % interval"]
    rows = {row[0]: row[1:] for row in first[2:]}
    assert rows["Output tokens"] == ["286/s", ""]  # of a single run
    assert rows["TTFT p50"] == ["84\N{NO-BREAK SPACE}ms", "79 to 89"]
    assert rows["Requests"][0] == "192 of 200 completed, 4 failed, 4 cancelled"
    assert "**Valid**" in text
    assert "`forebay bench serve --url http://127.0.0.1:8000 --workload 'chat mix'`" in text
    assert "`Target: profile_digest`" in text


def test_requests_that_were_planned_and_not_sent_are_told() -> None:
    text = render_markdown([documents.serve(workload={"requests": 205})])
    assert "192 of 200 completed, 4 failed, 4 cancelled, 5 more not sent" in text
    for planned in (True, -1, 200, "many", None):
        assert "not sent" not in render_markdown([documents.serve(workload={"requests": planned})])


def test_several_results_have_ratios() -> None:
    text = render_markdown([documents.serve(), documents.serve("slow", 7, 1.5)])
    well_formed(text)
    first = tables(text)[0]
    assert first[0] == ["", "`main`", "`slow`", "ratio", "verdict"]
    ttft = next(row for row in first if row[0] == "TTFT p50")
    assert ttft[-1] == "slower"
    assert re.fullmatch(r"1\.\d+\N{MULTIPLICATION SIGN} \(1\.\d+ to \d\.\d+\)", ttft[-2])


def test_invalid_is_a_warning_with_each_reason() -> None:
    found = documents.invalid()
    text = render_markdown([found])
    assert "> [!WARNING]\n> **Invalid**: do not quote these figures." in text
    for reason in found.invalid_reasons:
        assert f"> - `{reason}`" in text
    assert "**Valid**" not in text


KINDS = (
    documents.sweep,
    documents.searched,
    documents.latency,
    documents.ops,
    documents.startup,
    documents.empty,
    documents.compared,
)


@pytest.mark.parametrize("one", KINDS)
def test_every_kind_is_well_formed(one: Callable[[], Result]) -> None:
    text = render_markdown([one()])
    well_formed(text)
    assert render_markdown([one()]) == text


def test_rows_and_nothing() -> None:
    assert len(tables(render_markdown([documents.sweep()]))[0]) == 2 + 12
    well_formed(render_markdown([Result(kind="serve", label="", created="", seed=0)]))
    with pytest.raises(BenchError, match="at least"):
        render_markdown([])


def test_hostile_text_stands_in_code_spans_only() -> None:
    """Outside code spans there is nothing of it: no tag, no link, no mention, no further table cell."""
    for results in ([documents.hostile()], [documents.hostile(), documents.serve()]):
        text = render_markdown(results)
        well_formed(text)
        outside = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", text)
        for bad in ("script", "alert", "http:", "@all", "![", "onload", "-->"):
            assert bad not in outside, bad
        assert text.count("@all") > 20


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        ("``a", "``` ``a ```"),
        ("a|b", "`a\\|b`"),
        ("two\nlines", "`two lines`"),
        ("", "` `"),
        ("x" * 400, f"`{'x' * 299}…`"),
    ],
)
def test_a_code_span_holds_any_text(text: str, span: str) -> None:
    assert code(text) == span
