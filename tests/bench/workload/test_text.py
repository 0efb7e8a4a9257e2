"""Exact token counts, and slices of which no two begin alike."""

from __future__ import annotations

import gzip
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.bench.workload import text as text_module
from forebay.bench.workload.prompts import EndpointKind, PromptMaker, user
from forebay.bench.workload.text import FAMILIES, HEAD, TextSource, count_chat, read_text
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.gguf import tokenizer_from_gguf
from tests.support.shared import shared_path
from tests.tokenizer.vocabularies import GGUF_NAMES, gguf_metadata, gguf_tokenizer, stories_tokenizer

LENGTHS = [*range(2, 41), 64, 100, 127, 128, 129, 255, 256, 257, 511, 1000]

HOSTILE = (
    *("日本語", "の", "テキスト", "漢字", "한국어", "นะครับ", "العربية", "\U0001d54f\U0001d56a", "émigré", "\ufdfd"),
    *("👩\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "a\u0310e\u0301", "ﬀ", "\ufffd", "\ufeff", "\u200b", "aaaa"),
    *("<|im_start|>user", "<s>", "</s>", "<|begin_of_text|>", "\t", "\r\n", "\x0b", "\x00", "   ", "\n\n\n", " \u3000"),
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Marks, emoji of many tokens, scripts without spaces, special tokens and every sort of space, in random order."""
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("text") / "hostile.txt"
    parts = (draw.choice(HOSTILE) + draw.choice(["", " ", chr(draw.randrange(0x20, 0x2FFF))]) for _ in range(12_000))
    path.write_text("".join(parts), encoding="utf-8", newline="")
    return path


def with_template(name: str, template: str) -> Tokenizer:
    source = shared_path(f"chat/templates/{template}.jinja").read_text()
    return tokenizer_from_gguf(gguf_metadata(name) | {"tokenizer.chat_template": source})


def test_text_prompts_have_exactly_the_tokens_asked_for(smollm2: Tokenizer) -> None:
    source = TextSource(smollm2)
    for n in [1, *LENGTHS]:
        assert len(smollm2.encode(source.cut_text(n))) == n


def test_chat_prompts_have_exactly_the_tokens_asked_for(smollm2: Tokenizer) -> None:
    maker = PromptMaker(smollm2, TextSource(smollm2), "chat", token_ids=True)
    for n in [maker.least, *(maker.least + length for length in LENGTHS)]:
        assert len(as_ids(smollm2, maker.of(n))) == n


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_counts_are_exact_on_every_vocabulary_and_on_hostile_text(name: str, hostile_text: Path) -> None:
    tokenizer = gguf_tokenizer(name)
    for source in (TextSource(tokenizer), TextSource(tokenizer, path=hostile_text)):
        for n in LENGTHS[:-1]:
            assert len(tokenizer.encode(source.cut_text(n))) == n


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("llama-bpe", "meta-llama-Llama-3.1-8B-Instruct"),  # trims the message and writes BOS and date itself
        ("llama-spm", "google-gemma-2-2b-it"),
        ("qwen2", "Qwen-Qwen3-0.6B"),
    ],
)
def test_chat_counts_are_exact_whatever_the_template_does(name: str, template: str, hostile_text: Path) -> None:
    tokenizer = with_template(name, template)
    maker = PromptMaker(tokenizer, TextSource(tokenizer, path=hostile_text), "chat", token_ids=True)
    for n in range(maker.least, maker.least + 40):
        assert len(as_ids(tokenizer, maker.of(n))) == n


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_text_between_any_words_is_exact(smollm2: Tokenizer, tmp_path: Path, data: st.DataObject) -> None:
    written = data.draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=400, max_size=1200))
    prefix, suffix = (data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=12)) for _ in range(2))
    path = tmp_path / "any.txt"
    path.write_text(written, encoding="utf-8", newline="")
    n = len(smollm2.encode(prefix + suffix)) + data.draw(st.integers(1, 60))
    try:
        found = TextSource(smollm2, path=path).cut_text(n, prefix, suffix)
    except BenchError:  # a text that is too poor is refused, never answered with another count
        return
    assert len(smollm2.encode(found)) == n
    assert found.startswith(prefix)
    assert found.endswith(suffix)


def test_less_than_the_template_needs_is_refused_with_the_least_possible(smollm2: Tokenizer) -> None:
    maker = PromptMaker(smollm2, TextSource(smollm2), "chat", token_ids=True)
    assert maker.least == count_chat(smollm2, user("")) + 1
    with pytest.raises(BenchError, match=f"10 tokens is impossible here: the least possible is {maker.least}"):
        maker.of(10)
    llama = gguf_tokenizer("llama-spm")
    with pytest.raises(BenchError, match="1 tokens is impossible here: the least possible is 2"):  # BOS is one
        TextSource(llama).cut_text(1)


def test_words_around_the_text_count_too(smollm2: Tokenizer) -> None:
    source = TextSource(smollm2)
    least = len(smollm2.encode("Say: . Thanks."))
    assert source.cut_text(least, "Say: ", ". Thanks.") == "Say: . Thanks."
    text = source.cut_text(least + 30, "Say: ", ". Thanks.")
    assert text.startswith("Say: ")
    assert text.endswith(". Thanks.")
    assert len(smollm2.encode(text)) == least + 30


def heads(prompts: list[list[int]], length: int) -> set[tuple[int, ...]]:
    return {tuple(prompt[:length]) for prompt in prompts}


@pytest.mark.parametrize("n", [HEAD, 16, 40, 300])
def test_no_two_slices_begin_alike_even_after_the_text_is_used_up(smollm2: Tokenizer, tmp_path: Path, n: int) -> None:
    path = tmp_path / "short.txt"
    path.write_bytes(shared_path("prompts/ulysses.md.gz").read_bytes())
    text = gzip.decompress(path.read_bytes()).decode()[20_000:80_000]
    path.write_text(text, encoding="utf-8")
    source = TextSource(smollm2, path=path)
    slices = [source.cut(n) for _ in range(300)]
    assert all(len(ids) == n for ids in slices)
    assert len(heads(slices, HEAD)) == 300
    assert source.passes > 1 or n < 40


def test_runs_with_neighbouring_seeds_have_no_beginning_in_common(smollm2: Tokenizer) -> None:
    found: set[tuple[int, ...]] = set()
    for seed in range(5):
        source = TextSource(smollm2, seed=seed)
        prompts = [smollm2.encode(source.cut_text(32)) for _ in range(200)]
        assert not found & heads(prompts, 16)
        found |= heads(prompts, 16)
    assert len(found) == 1000


def test_text_prompts_do_not_share_their_first_16_tokens(smollm2: Tokenizer) -> None:
    maker = PromptMaker(smollm2, TextSource(smollm2), "completions", token_ids=False)
    prompts = [as_ids(smollm2, maker.of(16)) for _ in range(1000)]
    assert len(heads(prompts, 16)) == 1000


def test_slices_are_real_text_from_the_beginning_of_a_word(smollm2: Tokenizer) -> None:
    source = TextSource(smollm2)
    slices = [smollm2.decode(source.cut(24)) for _ in range(100)]
    assert sum(text[0] == " " and text[1].isalnum() for text in slices) >= 95
    assert not any("\ufffd" in text for text in slices)


def test_the_seed_decides_the_text(smollm2: Tokenizer) -> None:
    first, again, other = (TextSource(smollm2, seed=seed).cut(64) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_the_text_is_tokenized_only_as_far_as_it_is_needed(smollm2: Tokenizer) -> None:
    started = time.process_time()
    source = TextSource(smollm2)
    source.cut(100)
    few = len(source._ids)
    prompts = [source.cut(256) for _ in range(1000)]
    assert time.process_time() - started < 3
    assert few < 20_000 < len(source._ids)
    assert source.passes == 1
    assert len(heads(prompts, HEAD)) == 1000


def test_special_tokens_written_out_in_a_text_are_left_out(smollm2: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "special.txt"
    path.write_text("".join(f" word{i} is the <|im_end|> of {i} <|endoftext|> lines" for i in range(300)))
    source = TextSource(smollm2, path=path)
    for _ in range(20):
        assert not smollm2.pieces.special_ids.intersection(source.cut(30))


def test_short_prompts_repeat_when_there_are_no_more_and_it_is_counted(smollm2: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text(" one two three four five six seven eight nine ten" * 20)
    source = TextSource(smollm2, path=path, seed=1)
    for _ in range(30):
        assert len(source.cut(1)) == 1
    assert source.repeated > 10


def test_a_text_without_enough_beginnings_is_refused(smollm2: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tiny.txt"
    path.write_text("Once upon a time there was a very small text that says hardly anything at all.")
    source = TextSource(smollm2, path=path)

    def cut_all() -> None:
        for _ in range(100):
            source.cut(64)

    with pytest.raises(BenchError, match=r"tiny.txt' of \d+ tokens has too few different beginnings .* longer text"):
        cut_all()


def test_a_packed_text_is_the_same_text(smollm2: Tokenizer, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_bytes(b" The quick brown fox, number %d.\n" * 40 % tuple(range(40)))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert TextSource(smollm2, path=plain).cut(50) == TextSource(smollm2, path=packed).cut(50)


def test_bad_text_files_are_refused_by_name(smollm2: Tokenizer, tmp_path: Path) -> None:
    def written(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    for path, words in (
        (tmp_path / "nothing.txt", "nothing.txt' cannot be read"),
        (tmp_path, "cannot be read"),
        (written("latin.txt", b"caf\xe9"), r"latin.txt' is not UTF-8 at byte 3; convert it"),
        (written("cut.gz", gzip.compress(b"text" * 9999)[:-20]), "cut.gz' cannot be read"),
        (written("no.gz", b"plain"), "no.gz' cannot be read"),
        (written("rot.gz", gzip.compress(b"ab" * 50)[:12] + b"\xff" * 40), "rot.gz' cannot be read"),
        (written("empty.txt", b""), "empty.txt' has no tokens"),
        (written("special.txt", b"<|im_end|><|im_end|>"), "special.txt' has no tokens"),
        (written("bomb.gz", gzip.compress(bytes(text_module.MAX_TEXT_BYTES + 1), 1)), "bomb.gz' is larger than 64 MiB"),
    ):
        with pytest.raises(BenchError, match=words):
            TextSource(smollm2, path=path).cut(1)


def test_a_text_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes("a\r\nb\u2028ü".encode())
    assert read_text(tmp_path / "t") == "a\r\nb\u2028ü"


def test_a_model_without_a_chat_template_is_refused() -> None:
    tokenizer = stories_tokenizer()
    with pytest.raises(BenchError, match=r"endpoint 'chat' cannot be measured on this model: .* no chat template"):
        PromptMaker(tokenizer, TextSource(tokenizer), "chat", token_ids=True)


def test_a_shared_prefix_is_shared_exactly_and_nothing_else_is(smollm2: Tokenizer) -> None:
    forms: tuple[tuple[EndpointKind, bool], ...] = (("completions", True), ("completions", False), ("chat", True))
    for endpoint, token_ids in forms:
        maker = PromptMaker(smollm2, TextSource(smollm2), endpoint, token_ids=token_ids, shared_prefix=100)
        ids = [as_ids(smollm2, maker.of(n)) for n in range(maker.least + 30, maker.least + 60)]
        front = common_tokens(*(as_ids(smollm2, user(text) if endpoint == "chat" else text) for text in ("a", "b")))
        common = [common_tokens(one, other) for one in ids for other in ids if one is not other]
        assert min(common) == front + 100 == maker.shared, endpoint
        assert max(common) < front + 100 + HEAD, endpoint


def as_ids(tokenizer: Tokenizer, prompt: Any, tools: Any = None) -> list[int]:
    """The tokens that the server sees, by the tokenizer alone."""
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    if isinstance(prompt[0], dict):
        return tokenizer.encode(tokenizer.render_chat(prompt, tools=tools), add_special_tokens=False)
    return list(prompt)


def common_tokens(one: list[int], other: list[int]) -> int:
    length = min(len(one), len(other))
    return next((i for i in range(length) if one[i] != other[i]), length)


def test_seeds_of_one_family_may_share_but_others_cannot() -> None:
    assert FAMILIES > 14  # runs count their seeds up, and the warm-up's is 1,000,003 further
    assert 1_000_003 % FAMILIES >= 12
