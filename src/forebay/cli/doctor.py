"""forebay doctor"""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli.profile_flags import with_profile
from forebay.profile import Profile

HELP = """Show this machine, and every setting with its value and the reason for it.

Nothing is served; a model that is not on this machine yet is fetched first.

\b
Examples:
  forebay doctor
  forebay doctor ./model.gguf --kv-memory-gib 2
  forebay doctor --json
"""


def add(app: typer.Typer) -> None:
    app.command("doctor", help=HELP)(with_profile(doctor))


def doctor(
    profile: Profile,
    model: Annotated[str | None, typer.Argument(help="The model to resolve for.", show_default="smollm2-135m")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    from forebay.profile import read_machine

    machine = read_machine().described()
    if as_json:
        _print_json(machine, profile)
    else:
        _print_tables(machine, profile)


def _print_json(machine: dict[str, str], profile: Profile) -> None:
    import msgspec

    from forebay.engine.build import assemble
    from forebay.profile import values

    resolved = assemble(profile).resolved
    settings = {name: {"value": value, "reason": resolved.reasons[name]} for name, value in values(resolved).items()}
    report = {
        "machine": machine,
        "profile": resolved.digest,
        "answer_class": resolved.answer_class,
        "settings": settings,
    }
    print(msgspec.json.format(msgspec.json.encode(report)).decode())


def _print_tables(machine: dict[str, str], profile: Profile) -> None:
    from rich.console import Console
    from rich.table import Table

    from forebay.engine.build import assemble
    from forebay.profile import values

    console = Console()
    facts = Table(title="This machine", show_header=False, title_justify="left")
    for name, fact in machine.items():
        facts.add_row(name, fact)
    console.print(facts)  # before anything that can fail
    resolved = assemble(profile).resolved
    settings = Table(title=f"Profile {resolved.digest[:12]}", title_justify="left")
    settings.add_column("setting", no_wrap=True)
    settings.add_column("value")
    settings.add_column("reason")
    for name, value in values(resolved).items():
        settings.add_row(name, str(value), resolved.reasons[name])
    console.print(settings, f"answer class: {resolved.answer_class}", sep="\n")
