"""Tokenizers that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.tokenizer import Tokenizer
from tests.tokenizer.vocabularies import file_tokenizer


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return file_tokenizer(smollm2_path)
