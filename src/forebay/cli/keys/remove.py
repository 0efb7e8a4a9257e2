"""forebay keys remove"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

HELP = """Remove a key. A running server refuses it from the next request on; requests that run end as usual.

\b
Examples:
  forebay keys remove keys.toml alice-laptop
"""


def add(app: typer.Typer) -> None:
    app.command("remove", help=HELP)(remove_key)


def remove_key(
    file: Annotated[Path, typer.Argument(help="The file of keys.", metavar="FILE")],
    name: Annotated[str, typer.Argument(help="As `forebay keys list` shows it.")],
) -> None:
    from forebay.server import key_file

    key_file.remove_key(file, name)
    print(f"removed {name} from {file}", file=sys.stderr)
