"""What is known about one profile field besides its value: type, range, unit, meaning.

A field is declared as `name: type = setting(default, "meaning", ...)`; everything else (checks, errors, docs, flags)
is derived from that line.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from forebay.errors import ProfileError

Auto = Literal["auto"]
AUTO: Final = "auto"

_KIND_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a profile.

    minimum, maximum: inclusive bounds. choices: the only values allowed. auto: "auto" is allowed, and resolved once.
    """

    kind: type
    default: Any
    meaning: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    auto: bool = False

    def wanted(self) -> str:
        """The values allowed, in words: "an integer from 1 to 1024 or "auto"" """
        if self.choices:
            text = "one of " + ", ".join(f'"{c}"' for c in self.choices)
        else:
            text = _KIND_WORDS[self.kind]
            if self.minimum is not None and self.maximum is not None:
                text += f" from {_shown(self.minimum)} to {_shown(self.maximum)}"
            elif self.minimum is not None:
                text += f" of at least {_shown(self.minimum)}"
        return f'{text} or "auto"' if self.auto else text

    def accepts(self, value: object) -> bool:
        if self.auto and value == AUTO:
            return True
        if self.choices:
            return value in self.choices
        if self.kind is str:
            return isinstance(value, str) and bool(value.strip())
        if self.kind is bool:
            return isinstance(value, bool)
        return self._accepts_number(value)

    def nearest(self, value: object) -> str:
        """' (did you mean "bf16"?)' for what is almost one of the choices, else nothing."""
        known = (*self.choices, AUTO) if self.auto else self.choices
        close = difflib.get_close_matches(str(value)[:80], known, n=1) if self.choices else []
        return f' (did you mean "{close[0]}"?)' if close else ""

    def _accepts_number(self, value: object) -> bool:
        # bool is an int in Python; `threads = true` is still a mistake
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if self.kind is int and not isinstance(value, int):
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


def _shown(bound: float) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)  # :g makes 1e+06 of a million


def setting(
    default: object,
    meaning: str,
    *,
    kind: type | None = None,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    auto: bool = False,
) -> Any:
    """Declare a dataclass field that carries a Setting. `kind` is the default's type unless that is "auto"."""
    described = Setting(
        kind=kind or type(default),
        default=default,
        meaning=meaning,
        unit=unit,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        auto=auto,
    )
    return dataclasses.field(default=default, metadata={"setting": described})


def settings_of(section: type) -> Mapping[str, Setting]:
    """Field name -> Setting of a section class, in order of declaration."""
    return {f.name: f.metadata["setting"] for f in dataclasses.fields(section)}


def check_fields(section: str, instance: Any) -> None:
    """Raise ProfileError for the first field of `instance` that holds a value its Setting does not accept."""
    for name, described in settings_of(type(instance)).items():
        value = getattr(instance, name)
        if not described.accepts(value):
            dotted = f"{section}.{name}"
            huge = isinstance(value, int) and value.bit_length() > 2**13  # Python refuses to print the hugest
            shown = "a number of thousands of digits" if huge else repr(value)[:80]
            hint = "" if huge else described.nearest(value)
            default = toml_value(described.default)
            raise ProfileError(
                f"{dotted} must be {described.wanted()}, got {shown}{hint}; the default is {default}", param=dotted
            )


def toml_value(value: object) -> str:
    """A value as a profile file would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"
