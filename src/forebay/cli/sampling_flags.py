"""Sampling flags that `generate` and `chat` share."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Sampling"
MaxTokens = Annotated[
    int | None, typer.Option(help="Most tokens to generate.", show_default="the profile's", rich_help_panel=PANEL)
]
Temperature = Annotated[float, typer.Option(help="0 always takes the likeliest token.", rich_help_panel=PANEL)]
TopP = Annotated[
    float, typer.Option(help="Sample from the likeliest tokens of this total probability.", rich_help_panel=PANEL)
]
TopK = Annotated[int, typer.Option(help="Sample from the k likeliest tokens; 0 is all.", rich_help_panel=PANEL)]
MinP = Annotated[
    float, typer.Option(help="Drop tokens below this share of the likeliest one's probability.", rich_help_panel=PANEL)
]
Seed = Annotated[
    int | None, typer.Option(help="The same seed gives the same text.", show_default="drawn", rich_help_panel=PANEL)
]
Stop = Annotated[
    list[str] | None, typer.Option(help="End the text before this string (repeatable).", rich_help_panel=PANEL)
]
