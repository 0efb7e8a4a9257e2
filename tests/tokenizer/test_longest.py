"""No token stands for more bytes than `longest` says, or it says nothing."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from tests.tokenizer.test_hf import byte_level_library, open_folder
from tests.tokenizer.vocabularies import GGUF_NAMES, gguf_tokenizer, stories_tokenizer

TEXTS = [text * 500 for text in (" ", "\n", "\u2581", "=", "a", "\U0001f999", "\u1112\u1161\u11ab", "\u212a")]


@pytest.mark.parametrize("name", [*GGUF_NAMES, "stories"])
def test_no_token_is_longer(name: str) -> None:
    tokenizer = stories_tokenizer() if name == "stories" else gguf_tokenizer(name)
    # phi-3's special tokens swallow whitespace, however long; the other two drop bytes they have no token for
    assert (tokenizer.longest is None) is (name in ("phi-3", "falcon", "starcoder"))
    if tokenizer.longest is None:
        return
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert len(text.encode()) <= tokenizer.longest * len(ids)


def test_nfc_makes_at_most_one_byte_of_three(tmp_path: Path) -> None:
    for code in (code for code in range(0x110000) if not 0xD800 <= code < 0xE000):
        apart = unicodedata.normalize("NFD", chr(code))
        together = unicodedata.normalize("NFC", apart)
        assert max(len(apart.encode()), len(chr(code).encode())) <= 3 * len(together.encode())
    library = byte_level_library()
    library.normalizer = normalizers.NFC()
    tokenizer = open_folder(tmp_path, library)
    assert tokenizer.longest == 3 * len("<think>")


@pytest.mark.parametrize("change", ["lowercase", "removed", "rstrip", "no bytes"])
def test_no_limit_where_text_can_vanish(change: str, tmp_path: Path) -> None:
    library = byte_level_library()
    if change == "lowercase":
        library.normalizer = normalizers.Lowercase()
    elif change == "removed":
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), library.pre_tokenizer])
    elif change == "rstrip":
        library.add_special_tokens([AddedToken("<end>", rstrip=True)])
    else:
        library = Tokenizer.from_str(library.to_str().replace('"!":', '"<no>":'))
    assert open_folder(tmp_path, library).longest is None
