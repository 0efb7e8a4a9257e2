"""Where a `$ref` leads inside its own document (RFC 6901 in a URI fragment)."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from forebay.structured.refusal import Pointer, Refusal, shown


def resolve(root: Any, base: str, reference: Any, at: Pointer) -> tuple[Pointer, Any]:
    """(pointer, target) of a reference that stands at `at`. base: the document's own `$id`, or "".

    Refusal: it leads to another document, to a name, or nowhere.
    """
    if not isinstance(reference, str):
        raise Refusal("must be a string", at)
    address, _, fragment = reference.partition("#")
    if address and address != base.partition("#")[0]:
        raise Refusal(f"{shown(reference)!r} is another document, which is never fetched; put it into $defs", at)
    fragment = unquote(fragment)
    if fragment and not fragment.startswith("/"):
        raise Refusal(f"{shown(reference)!r} is a name; only references by JSON pointer are supported", at)
    target, pointer = root, []
    for part in fragment.split("/")[1:]:
        step = _step(target, part.replace("~1", "/").replace("~0", "~"))
        if step is None:
            raise Refusal(f"{shown(reference)!r} leads nowhere in this document", at)
        target = target[step]
        pointer.append(step)
    return tuple(pointer), target


def _step(node: Any, part: str) -> str | int | None:
    """The key or index of a part, None where there is none."""
    if isinstance(node, dict):
        return part if part in node else None
    plain = part.isascii() and part.isdecimal() and (part == "0" or not part.startswith("0"))
    if isinstance(node, list) and plain and int(part) < len(node):
        return int(part)
    return None
