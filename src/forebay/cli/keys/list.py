"""forebay keys list"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HELP = """Show the name and tenant of every key, one a line.

\b
Examples:
  forebay keys list keys.toml
"""


def add(app: typer.Typer) -> None:
    app.command("list", help=HELP)(list_keys)


def list_keys(file: Annotated[Path, typer.Argument(help="The file of keys.", metavar="FILE")]) -> None:
    from forebay.server.key_file import read_key_file

    keys = read_key_file(file).keys
    width = max((len(entry.name) for entry in keys), default=0)
    for entry in keys:
        print(f"{entry.name:<{width}}  {entry.tenant}")
