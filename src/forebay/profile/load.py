"""Reading a profile: a TOML file, then overrides by name. Anything unknown or wrong is an error with a remedy."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from forebay.errors import ProfileError
from forebay.profile.schema import PROFILE_VERSION, SECTIONS, SETTINGS, Profile, with_values


def load_profile(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Read a profile file (None: all defaults) and apply overrides.

    overrides: "kv.block_size" or, where only one section has it, "block_size" -> value; None values are skipped, so
    that flags that were not given can be passed as they are.
    Raises ProfileError: file unreadable or not TOML, unknown section or key (with the nearest name), wrong type or
    range.
    """
    changes = {} if path is None else _read_file(path)
    for name, value in (overrides or {}).items():
        if value is not None:
            changes[setting_name(name)] = value
    return with_values(Profile(), changes)


def parse_assignment(text: str) -> tuple[str, Any]:
    """ "kv.block_size=32" -> ("kv.block_size", 32). The value is TOML, or else taken as plain text."""
    name, found, value = text.partition("=")
    if not found:
        raise ProfileError(f"{text!r} is not a setting; write NAME=VALUE, such as kv.block_size=16", param=text)
    try:
        return setting_name(name.strip()), tomllib.loads(f"v = {value}")["v"]
    except (ValueError, RecursionError):  # not TOML, too many digits, too deep
        return setting_name(name.strip()), value.strip()


def setting_name(name: str) -> str:
    """The dotted name of a setting given as "section.field" or as a field name that only one section has."""
    if name in SETTINGS:
        return name
    owners = [dotted for dotted in SETTINGS if dotted.split(".")[1] == name]
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise ProfileError(f"setting {name!r} could be {' or '.join(owners)}; write the section too", param=name)
    raise ProfileError(f"unknown setting {name!r}; {_nearest(name, SETTINGS)}", param=name)


def _read_file(path: Path) -> dict[str, Any]:
    """Dotted name -> value, with every name known."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot read profile {path}: {error.strerror}; give the path of a TOML file") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, too many digits, too deep
        raise ProfileError(f"profile {path} is not TOML: {error}") from error
    version = document.pop("version", PROFILE_VERSION)
    if version != PROFILE_VERSION:
        raise ProfileError(
            f"profile {path}: version must be {PROFILE_VERSION}, got {version!r}; this Forebay reads no other",
            param="version",
        )
    changes: dict[str, Any] = {}
    for section, fields in document.items():
        changes.update(_read_section(path, section, fields))
    return changes


def _read_section(path: Path, section: str, fields: object) -> dict[str, Any]:
    if section not in SECTIONS:
        raise ProfileError(f"profile {path}: unknown section [{section}]; {_nearest(section, SECTIONS)}", param=section)
    if not isinstance(fields, dict):
        raise ProfileError(f"profile {path}: {section} must be a section, written [{section}]", param=section)
    known = {dotted for dotted in SETTINGS if dotted.startswith(f"{section}.")}
    changes = {}
    for key, value in fields.items():
        dotted = f"{section}.{key}"
        if dotted not in known:
            hint = _nearest(dotted, _elsewhere(key) or known)
            raise ProfileError(f"profile {path}: unknown setting {dotted!r}; {hint}", param=dotted)
        changes[dotted] = value
    return changes


def _elsewhere(key: str) -> list[str]:
    """Settings of that very name in other sections: the likeliest mistake."""
    return [dotted for dotted in SETTINGS if dotted.split(".")[1] == key]


def _nearest(name: str, known: Iterable[str]) -> str:
    """What to say after "unknown ...;": the nearest name, or all of them."""
    candidates = list(known)
    by_key = {c.split(".")[-1]: c for c in candidates}
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    close = close or [by_key[k] for k in difflib.get_close_matches(name.split(".")[-1], by_key, n=1, cutoff=0.5)]
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(candidates)}"
