"""Flags of `serve` that say who may call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Security"
KeysFile = Annotated[
    Path | None,
    typer.Option(
        help="A file made with `forebay keys`; every path but /health then needs a key.",
        metavar="FILE",
        rich_help_panel=PANEL,
    ),
]
NoAuth = Annotated[
    bool,
    typer.Option("--no-auth", help="Let other machines in without API keys.", rich_help_panel=PANEL),
]
TlsCert = Annotated[
    Path | None, typer.Option(help="Certificate chain (PEM): serve https.", metavar="FILE", rich_help_panel=PANEL)
]
TlsKey = Annotated[Path | None, typer.Option(help="Its private key (PEM).", metavar="FILE", rich_help_panel=PANEL)]
CorsOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        help="Web pages of this origin may call, such as https://chat.example.com (repeatable).",
        metavar="ORIGIN",
        rich_help_panel=PANEL,
    ),
]
