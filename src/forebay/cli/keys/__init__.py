"""forebay keys: the file that `forebay serve --api-keys` reads."""

from __future__ import annotations

HELP = """Make, list and remove API keys.

The file holds the SHA-256 of each key, never a key. A running server sees every change with the next request.

\b
Examples:
  forebay keys add keys.toml alice
  forebay keys add keys.toml alice-laptop --tenant alice
  forebay keys list keys.toml
  forebay keys remove keys.toml alice-laptop
  forebay serve --api-keys keys.toml --host 0.0.0.0
"""


def begin() -> None:
    """Nothing comes before the commands."""


COMMANDS = {
    "add": "Make a key and print it; it can not be shown again.",
    "list": "Show the name and tenant of every key.",
    "remove": "Remove a key: it is refused from now on.",
}
