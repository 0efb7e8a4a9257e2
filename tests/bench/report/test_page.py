"""The page: whole, self-contained, escaped, the same each time, and there whatever a document lacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay.bench.record import RequestRecord
from forebay.bench.report.markdown import render_markdown
from forebay.bench.report.page import render_page
from forebay.bench.report.row_plots import length_plots
from forebay.bench.result import Distribution, Result, Run, StepSeries, Summary, write_result
from forebay.cli import main
from forebay.errors import BenchError
from tests.bench.report import documents

VOID = {"meta", "br", "hr", "img", "input", "link", "line", "circle"}
SECTIONS = {
    "head", "validity", "key-figures", "throughput", "distributions", "phases", "steps", "arrivals", "tables", "facts",
    "definitions",
}  # fmt: skip


class Page(HTMLParser):
    """Ids, attributes, and all text of a page; it notes elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: set[str] = set()
        self.text = ""
        self.errors: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.errors += [f"{tag} is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.errors.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open[-1:]:
            self.text += data


@pytest.fixture(scope="module")
def full() -> Result:
    return documents.serve()


@pytest.fixture(scope="module")
def text(full: Result) -> str:
    return render_page([msgspec.structs.replace(full, rows=documents.sweep().rows)])


@pytest.fixture(scope="module")
def hostile() -> str:
    return render_page([documents.hostile()])


def assert_self_contained(page: Page) -> None:
    """Nothing is fetched and nothing runs."""
    assert not page.tags & {
        "script",
        "link",
        "iframe",
        "object",
        "embed",
        "img",
        "base",
        "form",
        "image",
        "foreignobject",
    }
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in {"src", "srcset", "action", "formaction", "data", "poster", "background"}, (tag, name)
        assert name not in {"href", "xlink:href"} or value.startswith("#"), (tag, value)
        assert name != "style" or not re.search(r"url\((?!#)", value), (tag, value)
        assert name == "content" or "://" not in value, (tag, name, value)


def test_the_page_is_whole(text: str) -> None:
    page = Page(text)
    assert page.errors == []
    assert set(page.ids) >= SECTIONS
    assert len(page.ids) == len(set(page.ids)), "an id stands twice"
    assert "viewport" in text
    assert "prefers-color-scheme: dark" in text
    for said in ("192 of 200", "79 to 89", "TTFT p95", "server's view", "overloaded", "e349505ac0785a1b7d0c4c9a",
                 "forebay bench serve", "client_send", "seed 7", "avx512_vnni"):  # fmt: skip
        assert said in " ".join(page.text.split()), said


def test_the_page_needs_nothing_else(text: str, hostile: str) -> None:
    for one in (text, hostile):
        assert_self_contained(Page(one))
        styles = re.findall(r"<style[^>]*>(.*?)</style>", one, re.DOTALL)
        assert (len(styles), one.count("<style")) == (1, 1)
        assert not re.search(r"@import|url\(|expression", styles[0])
    assert "default-src 'none'" in text


def test_references_inside_a_drawing_are_to_itself(text: str) -> None:
    page = Page(text)
    known = set(page.ids)
    used = {value[1:] for _, name, value in page.attributes if name == "href"}
    used |= {found for _, _, value in page.attributes for found in re.findall(r"url\(#([^)]*)\)", value)}
    assert used
    assert used <= known


def test_drawings_have_real_text_in_the_colours_of_the_page(text: str) -> None:
    drawings = re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 2 * 5 + 3 * 2  # five at two widths, two also for a whole row
    for drawing in drawings:
        assert "<text" in drawing
        assert "var(--" in drawing
        assert not re.search(r"#[0-9a-f]{6}\b", drawing), "a colour that dark mode cannot change"
        assert "font-family" not in drawing
        assert "aria-label" in drawing


def test_hostile_strings_are_text_everywhere(hostile: str) -> None:
    page = Page(hostile)
    assert page.errors == []
    assert "script" not in page.tags
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert not re.search(r"<script|<svg onload|\x00|\u202e", hostile)
    assert page.text.count("<script>alert(1)</script>") >= 20  # read as text by a browser
    places = re.findall(r"<text[^>]*>[^<]*&lt;script&gt;", hostile)
    assert places, "the hostile name of a stretch stands in a drawing"
    assert "$\\frac{$" in page.text  # a dollar is a dollar


def test_the_same_documents_give_the_same_bytes(full: Result, text: str, tmp_path: Path) -> None:
    """In another process too, where sets have another order."""
    write_result(msgspec.structs.replace(full, rows=documents.sweep().rows), tmp_path / "r.json")
    code = "import sys\nfrom pathlib import Path\nfrom forebay.bench.report.page import render_page\n"
    code += (
        "from forebay.bench.result import read_result\nsys.stdout.write(render_page([read_result(Path(sys.argv[1]))]))"
    )
    command = [sys.executable, "-X", "utf8", "-c", code, str(tmp_path / "r.json")]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=environment)
    assert done.stdout == text


def test_invalid_is_the_first_thing_said() -> None:
    found = msgspec.structs.replace(documents.invalid(), steps=None)
    text = render_page([found])
    banner = text.index('class="banner invalid"')
    assert banner < text.index('class="tiles"')
    said = Page(text).text
    assert all(reason in said for reason in found.invalid_reasons)
    assert "Do not quote" in said
    assert 'class="banner valid"' not in text


def test_a_valid_result_has_no_warning(text: str) -> None:
    assert 'class="banner valid"' in text
    assert 'class="banner invalid"' not in text


def test_one_invalid_of_two_is_named() -> None:
    text = render_page([documents.sweep(), msgspec.structs.replace(documents.invalid(), runs=[], steps=None)])
    assert 'class="banner valid"' not in text
    assert "Invalid: noisy neighbour" in " ".join(Page(text).text.split())


@pytest.mark.parametrize(
    ("missing", "gone"),
    [
        ({"steps": None, "server": None, "buckets": {}}, {"steps"}),
        ({"runs": [], "reconciled": None}, {"arrivals", "phases"}),
        ({"summary": None, "steps": None, "server": None}, {"distributions", "steps"}),
    ],
)
def test_a_document_with_missing_parts_renders(full: Result, missing: dict[str, Any], gone: set[str]) -> None:
    page = Page(render_page([msgspec.structs.replace(full, **missing)]))
    assert page.errors == []
    assert set(page.ids) >= {"head", "validity", "tables", "facts", "definitions"}
    assert (SECTIONS - {"throughput", "key-figures"}) - set(page.ids) >= gone


def test_without_a_servers_record_the_client_says_what_it_knows(full: Result) -> None:
    bare = msgspec.structs.replace(full, steps=None, server=None, reconciled=None)
    said = " ".join(Page(render_page([bare])).text.split())
    assert "first token → last token (decode)" in said
    assert "The client alone cannot tell queue from prefill" in said
    assert "the server's view (give the measurement the server's record)" in said


def test_nothing_completed_and_nothing_at_all() -> None:
    for one in (documents.empty(), Result(kind="serve", label="", created="", seed=0)):
        page = Page(render_page([one]))
        assert page.errors == []
        assert "distributions" not in page.ids
    assert "0 of 12" in " ".join(Page(render_page([documents.empty()])).text.split())


def test_requests_that_were_not_sent_have_a_row(full: Result) -> None:
    planned = msgspec.structs.replace(full, workload={"requests": 205})
    assert re.search(r"Planned, but not sent\s*5\s", Page(render_page([planned])).text)


def test_rows_are_tables_and_what_is_the_same_is_said_once() -> None:
    said = " ".join(Page(render_page([documents.ops()])).text.split())
    assert "What this machine can do" in said
    assert "In every row: backend native, isa avx512_vnni, threads 2, working set 94.0 MiB, spread 6.00 %." in said
    said = " ".join(Page(render_page([documents.startup()])).text.split())
    assert "512 ms" in said
    assert "394 MiB" in said


def test_a_sweep_labels_its_points_and_names_its_knobs() -> None:
    text = render_page([documents.sweep()])
    drawing = re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL)[1]
    labels = re.findall(r"<text[^>]*>(\d+ · \d+)</text>", drawing)
    assert len(set(labels)) == 12
    assert "Labels: scheduler.token_budget · scheduler.max_running." in " ".join(Page(text).text.split())


def test_a_search_shows_every_rate_it_tried_and_no_digest() -> None:
    page = Page(render_page([documents.searched()]))
    said = " ".join(page.text.split())
    assert page.errors == []
    assert "rates" in page.ids
    assert "Hollow: not enough requests kept the SLO (the line: 90.0 %)." in said
    assert "2 more columns are in the document." in said  # p99 beside p95, and the digests of loads
    assert f"{128:064x}" not in said
    assert "000000000000…" in said


def test_speed_by_length_has_a_line_for_each_result() -> None:
    one, two = documents.latency(), documents.latency("slower", 0.7)
    assert [plot.title for plot in length_plots([one])] == ["Prompt speed by length", "Decode speed by length"]
    assert [len(plot.traces) for plot in length_plots([one, two])] == [2, 2]
    page = Page(render_page([one, two]))
    assert page.errors == []
    assert "lengths" in page.ids
    assert length_plots([documents.sweep()]) == []


def test_several_results_are_compared_to_the_first(full: Result) -> None:
    page = Page(render_page([full, documents.serve("slow", 7, 1.5, steps=None)]))
    assert page.errors == []
    assert "comparison" in page.ids
    said = " ".join(page.text.split())
    assert "main against slow" in said
    assert "slower" in said
    assert "main is one run only" in said


def test_a_comparison_document_is_shown_as_its_two_sides() -> None:
    page = Page(render_page([documents.compared()]))
    said = " ".join(page.text.split())
    assert "main against budget 1024" in said
    assert "180 of 180 answers are the same" in said
    assert "Pairs of runs" in said
    doubtful = msgspec.structs.replace(documents.compared(), valid=False, invalid_reasons=["noise"])
    assert render_page([doubtful]).count('class="banner invalid"') == 1
    assert render_markdown([doubtful]).count("**Invalid**") == 1
    assert {"comparison", "distributions", "arrivals"} <= set(page.ids)


def extreme(value: float) -> Result:
    """Figures that no measurement gives."""
    parts = ("mean", "min", "p50", "p90", "p95", "p99", "max")
    one = Distribution(
        count=1, **dict.fromkeys(parts, value), intervals={"p50": (value, value), "p95": (-value, value)}
    )
    latencies = dict.fromkeys(("ttft_s", "itl_s", "tpot_s", "e2e_s"), one)
    rates = ("duration_s", "request_rate", "output_token_rate", "total_token_rate", "goodput", "slo_attained")
    counts = {"requests": 1, "completed": 1, "cancelled": 0, "prompt_tokens": 1, "cached_tokens": 0, "output_tokens": 1}
    summary = Summary(boundary="b", failures={}, **dict.fromkeys(rates, value), **counts, **latencies)
    big = int(max(-(2.0**62), min(2.0**62, value)))
    record = RequestRecord(
        index=0, intended_ns=big, sent_ns=-big, token_ns=(big, 0, -big), token_counts=(1, 1, 1), end_ns=big,
        planned_output_tokens=1,
    )  # fmt: skip
    columns = {name: [value, 0.0] if name.endswith("_s") else [big, 0] for name in StepSeries.__struct_fields__}
    figures = {"output_token_rate": value, "ttft_p95_s": value, "x_bytes": value, "r_range": [value, 1]}
    return Result(
        kind="serve", label="x", created="", seed=0, summary=summary, server=summary, steps=StepSeries(**columns),
        runs=[Run(started_ns=big, load=documents.load(wall_s=value), records=(record, record))],
        rows=[{"knobs": {"n": n}, **figures} for n in range(3)],
    )  # fmt: skip


@pytest.mark.parametrize("value", [0.0, 1e-300, -1.0, 1e6, 1e308])
@pytest.mark.filterwarnings("error:.*:RuntimeWarning")
def test_extreme_numbers_render(value: float) -> None:
    one = extreme(value)
    assert Page(render_page([one])).errors == []
    assert render_markdown([one])


@pytest.mark.parametrize("value", [-1e308, 5e-9])
@pytest.mark.filterwarnings("error:.*:RuntimeWarning")
def test_extreme_numbers_side_by_side_render(value: float) -> None:
    two = [extreme(value), msgspec.structs.replace(extreme(-value), label="y")]
    assert Page(render_page(two)).errors == []
    assert render_markdown(two)


def test_no_results_is_an_error() -> None:
    with pytest.raises(BenchError, match="at least"):
        render_page([])


def test_without_matplotlib_the_page_says_what_to_install_and_the_summary_works(tmp_path: Path) -> None:
    write_result(documents.serve(), tmp_path / "r.json")
    block = "import sys\nsys.modules['matplotlib'] = None\nfrom forebay.bench.report.page import render_page\n"
    block += "from forebay.bench.report.markdown import render_markdown\nfrom forebay.bench.result import read_result\n"
    block += "from forebay.errors import MissingExtraError\nfrom pathlib import Path\n"
    block += "found = [read_result(Path(sys.argv[1]))]\nprint(render_markdown(found)[:24])\n"
    block += "try:\n    render_page(found)\nexcept MissingExtraError as error:\n    print(error)\n"
    done = subprocess.run(
        [sys.executable, "-c", block, str(tmp_path / "r.json")], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "### forebay bench: `main",
        "drawing a report needs matplotlib; install it with: pip install 'forebay[bench]'",
    ]


def test_settings_of_the_program_around_are_left_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 40, "lines.linewidth": 9, "text.usetex": True}):
        changed = dict(matplotlib.rcParams)
        with_changes = render_page([documents.sweep()])
        assert dict(matplotlib.rcParams) == changed
    assert dict(matplotlib.rcParams) == before
    assert with_changes == render_page([documents.sweep()])


def test_the_command_writes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = documents.sweep()
    write_result(one, tmp_path / "a.json.gz")
    html, markdown = tmp_path / "out" / "r.html", tmp_path / "r.md"
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(tmp_path / "a.json.gz"), "--html", str(html), "--markdown", str(markdown)])
    assert ended.value.code == 0
    assert html.read_text("utf-8") == render_page([one])
    assert markdown.read_text("utf-8") == render_markdown([one])
    with pytest.raises(SystemExit):
        main(["bench", "report", str(tmp_path / "a.json.gz")])
    assert capsys.readouterr().out == render_markdown([one])


@pytest.mark.parametrize("content", [None, b"{}", b"\x1f\x8b junk", b'{"kind": 3}'])
def test_a_file_that_is_no_result_is_one_line(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(path), "--html", str(tmp_path / "r.html")])
    assert ended.value.code == 2
    assert re.fullmatch(r"forebay: result file .*\n", capsys.readouterr().err)
    assert not (tmp_path / "r.html").exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_result(documents.empty(), tmp_path / "a.json")
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(tmp_path / "a.json"), "--markdown", str(tmp_path)])
    assert ended.value.code == 2
    assert re.fullmatch(r"forebay: report .* cannot be written: .*; name a writable file\n", capsys.readouterr().err)
