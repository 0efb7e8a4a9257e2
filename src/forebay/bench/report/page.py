"""One HTML page of one or several results: no script, no network, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from forebay.bench.report import facts, plots, roofline_plot, row_plots, series, svg, tables, tiles, time_plots, units
from forebay.bench.report.definitions import DEFINITIONS
from forebay.bench.report.plots import SECTIONS, Plot
from forebay.bench.report.tables import Table
from forebay.bench.report.versus import Versus, split, versus
from forebay.bench.result import Result
from forebay.errors import BenchError

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A result's line at the top."""

    label: str
    about: tuple[str, ...]
    colour: str
    dash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a document is invalid."""

    label: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    id: str
    title: str
    plots: tuple[Plot, ...]
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """All tables of one result."""

    label: str
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    title: str
    kinds: str
    results: tuple[Head, ...]
    doubts: tuple[Doubt, ...]
    tiles: tuple[tiles.Tile, ...]
    intervals: bool
    comparison: Versus | None
    sections: tuple[Section, ...]
    missing: tuple[str, ...]
    details: tuple[Detail, ...]
    facts: tuple[facts.Facts, ...]


def render_page(results: Sequence[Result]) -> str:
    """The whole document; the same results give the same text. All strings of the results are escaped.

    Raises MissingExtraError without matplotlib, BenchError for no results or columns of different lengths.
    """
    if not results:
        raise BenchError("a report needs one result at least; name the files that --output wrote", param="results")
    for result in results:
        series.check(result, f"result {units.clean(result.label)!r}")
    svg.require_matplotlib()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else units.clean(value),
    )
    style = Markup((_FOLDER / "page.css").read_text("utf-8").strip())  # ours, no part of a document
    context: dict[str, Any] = {"page": _page(results), "style": style, "definitions": DEFINITIONS}
    return environment.get_template("page.html.jinja").render(context)


def _page(given: Sequence[Result]) -> Page:
    results = split(given)
    sections = tuple(_sections(results))
    return Page(
        title=" against ".join(units.clean(one.label) for one in results[:3]) + (" …" if len(results) > 3 else ""),
        kinds=", ".join(dict.fromkeys(units.clean(one.kind) for one in results)),
        results=tuple(_head(one, index) for index, one in enumerate(results)),
        doubts=tuple(_doubt(one) for one in given if not one.valid),
        tiles=tuple(tiles.tiles(results)),
        intervals=any(one.summary is not None and one.summary.completed for one in results),
        comparison=versus(given),
        sections=sections,
        missing=tuple(_missing(results, sections)),
        details=tuple(_detail(one) for one in results),
        facts=tuple(facts.facts(one) for one in results),
    )


def _head(result: Result, index: int) -> Head:
    colour, dash = tiles.mark(index)
    model = result.target.get("model")
    known = [model, result.created, f"seed {result.seed}", result.slo and f"SLO {result.slo}"]
    return Head(
        label=units.clean(result.label), about=tuple(units.clean(one) for one in known if one), colour=colour,
        dash=dash,
    )  # fmt: skip


def _doubt(result: Result) -> Doubt:
    reasons = tuple(units.clean(reason) for reason in result.invalid_reasons[:50])
    return Doubt(label=units.clean(result.label), reasons=reasons or ("the document gives no reason",))


def _sections(results: Sequence[Result]) -> Iterable[Section]:
    phase = plots.phase_plot(results)
    drawn = [
        *plots.throughput_plots(results),
        *row_plots.length_plots(results),
        *row_plots.rate_plots(results),
        *roofline_plot.roofline_plots(results),
        *plots.distribution_plots(results),
        *([phase] if phase is not None else []),
        *time_plots.step_plots(results),
        *time_plots.arrival_plots(results),
    ]
    for name, title in SECTIONS.items():
        here = tuple(one for one in drawn if one.section == name)
        if here:
            beside = [tables.stretch_table(one) for one in results] if name == "phases" and not here[0].wide else []
            yield Section(id=name, title=title, plots=here, tables=tuple(one for one in beside if one is not None))


def _missing(results: Sequence[Result], sections: Sequence[Section]) -> Iterable[str]:
    """What a reader might look for and does not find, and what would give it."""
    have = {one.id for one in sections}
    if not any(one.summary is not None for one in results):
        return
    if "distributions" not in have:
        yield "latencies (no request was completed)"
    if any(one.kind == "serve" for one in results) and not any(one.server is not None for one in results):
        yield "the server's view (give the measurement the server's record)"
    if "steps" not in have:
        yield "steps (they are in the server's record)"
    if "arrivals" not in have:
        yield "single requests"


def _detail(result: Result) -> Detail:
    found: list[Table | None] = [*tables.row_tables(result)]
    if result.summary is not None:
        found.append(tables.latency_table(result.summary, "Latencies, seen by the client"))
    if result.server is not None:
        found.append(tables.latency_table(result.server, "Latencies, seen by the server"))
    found.append(tables.bucket_table(result.buckets))
    if result.summary is not None:
        found += [tables.count_table(result.summary, tables.not_sent(result)), tables.failure_table(result)]
    return Detail(label=units.clean(result.label), tables=tuple(one for one in found if one is not None))
