"""forebay keys add"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

HELP = """Make a key and print it, the only time it can be seen. The file is made if there is none.

Requests of keys with one tenant may reuse each other's cached prefixes; tenants never do.

\b
Examples:
  forebay keys add keys.toml alice
  forebay keys add keys.toml alice-laptop --tenant alice
"""


def add(app: typer.Typer) -> None:
    app.command("add", help=HELP)(add_key)


def add_key(
    file: Annotated[Path, typer.Argument(help="The file of keys.", metavar="FILE")],
    name: Annotated[str, typer.Argument(help="What the key is called here.")],
    tenant: Annotated[
        str | None, typer.Option(help="Whose requests it makes.", show_default="the name", metavar="TENANT")
    ] = None,
) -> None:
    from forebay.server import key_file

    owner = name if tenant is None else tenant
    key = key_file.add_key(file, name, owner)
    print(f"added {name} (tenant {owner}) to {file}; its key, shown this once:", file=sys.stderr)
    print(key)
