"""Which Forebay this is."""

from __future__ import annotations

from importlib import metadata


def package_version() -> str:
    """The installed version; a source tree that was never installed has none."""
    try:
        return metadata.version("forebay")
    except metadata.PackageNotFoundError:
        return "0+source"
