"""Where tests find the shared data set; they skip with a printed reason where it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def shared_root() -> Path | None:
    root = Path(os.environ.get("FOREBAY_SHARED_DATA", _DEFAULT))
    return root if root.is_dir() else None


def shared_path(relative: str) -> Path:
    """A path below the shared data folder, or a skip that says what is missing."""
    root = shared_root()
    path = None if root is None else root / relative
    if path is None or not path.exists():
        pytest.skip(f"shared data {relative!r} not found (set FOREBAY_SHARED_DATA to its folder)")
    return path
