"""forebay bench report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HELP = """Make a page and a summary of result documents.

The page is one HTML file that needs no network and no other file. The first result is the one others are compared to.
Without any of the options the summary is printed. Drawings need matplotlib: pip install 'forebay\\[bench]'.

\b
Examples:
  forebay bench report result.json
  forebay bench report result.json --html report.html
  forebay bench report before.json after.json --html report.html --markdown report.md
  forebay bench report ops.json --roofline roofline.svg
"""


def add(app: typer.Typer) -> None:
    app.command("report", help=HELP)(report)


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Result documents, as --output wrote them.", metavar="RESULT...")
    ],
    html: Annotated[Path | None, typer.Option(help="Write the page here.", metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the summary here.", metavar="FILE")] = None,
    roofline: Annotated[
        Path | None, typer.Option(help="Write the roofline of a result of `bench ops` here, as SVG.", metavar="FILE")
    ] = None,
) -> None:
    from forebay.bench.report.markdown import render_markdown
    from forebay.bench.report.page import render_page
    from forebay.bench.report.roofline_plot import roofline_svg
    from forebay.bench.result import read_result

    found = [read_result(path) for path in results]
    if html is not None:
        _write(html, render_page(found))
    if roofline is not None:
        _write(roofline, roofline_svg(found[0]))
    if markdown is not None or (html is None and roofline is None):
        text = render_markdown(found)
        if markdown is None:
            typer.echo(text, nl=False)
        else:
            _write(markdown, text)


def _write(path: Path, text: str) -> None:
    """Raises BenchError if the file cannot be written."""
    from forebay.errors import BenchError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BenchError(f"report {path} cannot be written: {error.strerror}; name a writable file") from error
