"""How a check says no: what it is about, where it stands, why."""

from __future__ import annotations

from forebay.errors import GrammarError

Pointer = tuple[str | int, ...]
_MAX_SHOWN = 300


class Refusal(Exception):  # noqa: N818  # turned into a GrammarError at the door, which names the field
    """A part of a spec that cannot be enforced. pointer: where it stands in a JSON source; None in one that is text."""

    def __init__(self, reason: str, pointer: Pointer | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer = pointer

    def error(self, param: str) -> GrammarError:
        where = "" if self.pointer is None else f" at {json_pointer(self.pointer)}:"
        return GrammarError(f"{param}:{where} {self.reason}", param=param)


def json_pointer(pointer: Pointer) -> str:
    """RFC 6901, a slash for the whole document, shortened where it is very long."""
    text = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in pointer) or "/"
    return shown(text)


def shown(text: str) -> str:
    """Text of a client, fit for a message."""
    plain = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[: _MAX_SHOWN + 1])
    return plain if len(text) <= _MAX_SHOWN else f"{plain[:_MAX_SHOWN]}..."
