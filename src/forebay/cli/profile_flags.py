"""Profile flags of the commands, generated from the profile's own schema: the one place that knows them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.profile import SETTINGS, Profile, Setting, load_profile, parse_assignment

# flag -> setting; every other setting is reached with --set
FLAGS = {
    "--max-model-len": "model.max_model_len",
    "--weights": "model.weights",
    "--backend": "backend.name",
    "--isa": "backend.isa",
    "--threads": "backend.threads",
    "--kv-dtype": "kv.dtype",
    "--kv-memory-gib": "kv.memory_gib",
    "--token-budget": "scheduler.token_budget",
    "--max-requests": "scheduler.max_requests",
}
PANEL = "Profile"


def with_profile(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the `profile: Profile` parameter of a command by --profile, --set and the flags above.

    The command's `model` parameter, if it is not None, overrides `model.source`. A flag that the command has itself,
    under the same name, is the command's.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != "profile"]
    taken = {p.name for p in own}
    added = [p for p in _parameters() if p.name not in taken]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        flags = {p.name: given.pop(p.name) for p in added}
        command(profile=_profile(given.get("model"), flags), **given)

    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]  # what inspect.signature reads
    run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    del run.__wrapped__  # typer would read the hints of the command instead
    return run


def _parameters() -> Iterator[inspect.Parameter]:
    yield _parameter("--profile", "A profile file (TOML); flags override it.", Path | None, "FILE", "profile_file")
    for flag, dotted in FLAGS.items():
        yield _parameter(flag, _help(dotted), str | None, _values(SETTINGS[dotted]))
    yield _parameter("--no-prefix-cache", "Do not reuse the KV of equal prefixes.", bool)
    yield _parameter(
        "--set", "Any setting, such as kv.block_size=32 (repeatable).", list[str] | None, "NAME=VALUE", "sets"
    )


def _parameter(
    flag: str, help_text: str, type_: Any, metavar: str | None = None, name: str | None = None
) -> inspect.Parameter:
    option = typer.Option(flag, help=help_text, metavar=metavar, show_default=False, rich_help_panel=PANEL)
    default = False if type_ is bool else None
    annotation = Annotated[type_, option]
    return inspect.Parameter(
        name or _name(flag), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _help(dotted: str) -> str:
    known = SETTINGS[dotted]
    return f"{known.meaning.replace('`', '')} [dim]\\[{dotted}, default {known.default}][/dim]"


def _values(known: Setting) -> str:
    """What a flag takes, for its help: the choices, or the kind of value."""
    if not known.choices:
        return known.kind.__name__.upper()
    return "|".join((*known.choices, "auto") if known.auto else known.choices)


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _profile(model: str | None, flags: dict[str, Any]) -> Profile:
    """File, then --set, then flags: the more particular wins. Raises ProfileError."""
    changes: dict[str, Any] = dict(parse_assignment(text) for text in flags.get("sets") or ())
    for flag, dotted in FLAGS.items():
        if (text := flags[_name(flag)]) is not None:
            changes.update([parse_assignment(f"{dotted}={text}")])
    if flags["no_prefix_cache"]:
        changes["kv.prefix_cache"] = False
    if model is not None:
        changes["model.source"] = model
    return load_profile(flags["profile_file"], changes)
