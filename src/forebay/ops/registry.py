"""Backends by name."""

from __future__ import annotations

import importlib.util

from forebay.errors import ProfileError
from forebay.ops.protocol import Backend
from forebay.ops.reference import ReferenceBackend


def available_backends() -> tuple[str, ...]:
    """Backends of this install, best first."""
    native = importlib.util.find_spec("forebay.ops._native") is not None
    return ("native", "reference") if native else ("reference",)


def create_backend(name: str, *, isa: str = "auto", threads: int = 1) -> Backend:
    """A backend by name; isa and threads are for `native`."""
    if name == "reference":
        return ReferenceBackend()
    if name == "native":
        from forebay.ops.native import NativeBackend  # an optional extension, imported only when asked for

        return NativeBackend(isa=isa, threads=threads)
    raise ProfileError(
        f"backend.name must be one of {', '.join(available_backends())}, got {name!r}", param="backend.name"
    )
