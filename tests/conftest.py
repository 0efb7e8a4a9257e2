"""Fixtures every test folder shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as a GGUF, fetched on first use."""
    given = os.environ.get("FOREBAY_TEST_SMOLLM2")
    if given:
        return Path(given)
    from forebay.weights.sources import resolve_source

    return resolve_source("smollm2-135m", progress=False)
