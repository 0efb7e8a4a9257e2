"""How the engine names the n requests of one AddRequest."""

from __future__ import annotations


def child_id(request_id: str, index: int) -> str:
    """The engine's request id of child `index`."""
    return f"{request_id}:{index}"
