"""Flags that several bench commands share, as annotations of their parameters."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay import env


def _key(given: str | None) -> str | None:
    return given or env.openai_api_key()


Slo = Annotated[str | None, typer.Option(help="Limits for goodput: ttft:500ms,itl:50ms,tpot:40ms,e2e:5s.")]
Repeat = Annotated[int, typer.Option(help="Runs, each with prompts of its own.", min=1)]
Warmup = Annotated[int, typer.Option(help="Requests before the first run, not counted.", min=0, max=65_536)]
Timeout = Annotated[float, typer.Option(help="Most seconds a request may take.", min=0.1)]
Tokenizer = Annotated[
    str | None, typer.Option(help="What counts a URL's tokens: GGUF, folder or name.", show_default="its model")
]
ApiKey = Annotated[
    str | None,
    typer.Option(help="Sent as a bearer token to a URL.", show_default="OPENAI_API_KEY", callback=_key),
]
