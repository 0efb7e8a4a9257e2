"""Each bucket is what its name says, at every context length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.bench.plan import Turn
from forebay.bench.workload.buckets import BUCKETS, Bucket, Desk, mixed, parse_mix
from forebay.bench.workload.text import TextSource
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer
from tests.bench.workload.test_text import as_ids
from tests.tokenizer.vocabularies import stories_tokenizer

NAMES = [bucket.name for bucket in BUCKETS]


def named(name: str) -> Bucket:
    return next(bucket for bucket in BUCKETS if bucket.name == name)


def made(tokenizer: Tokenizer, name: str, count: int, **options: Any) -> list[Turn]:
    desk = Desk(tokenizer=tokenizer, source=TextSource(tokenizer), rng=np.random.default_rng(7), **options)
    return [named(name).make(named(name), desk) for _ in range(count)]


def content(turn: Turn) -> str:
    message = turn.prompt[0]
    assert isinstance(message, dict)
    assert len(turn.prompt) == 1
    return str(message["content"])


@pytest.mark.parametrize("max_model_len", [None, 8192, 1024, 400, 160])
@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_counted_right_and_fit(smollm2: Tokenizer, name: str, max_model_len: int | None) -> None:
    for turn in made(smollm2, name, 12, max_model_len=max_model_len):
        assert turn.bucket == name
        assert turn.prompt_tokens == len(as_ids(smollm2, turn.prompt, turn.body.get("tools")))
        assert turn.max_tokens >= 1
        assert turn.prompt_tokens + turn.max_tokens <= (max_model_len or 10**9)
        assert turn.body["temperature"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_context_that_is_too_short_is_an_error_with_the_bucket_s_name(smollm2: Tokenizer, name: str) -> None:
    with pytest.raises(BenchError, match=f"mix: bucket '{name}' needs .* max_model_len is 8; leave it out"):
        made(smollm2, name, 1, max_model_len=8)


def test_sizes_are_those_of_the_bucket(smollm2: Tokenizer) -> None:
    for turn in made(smollm2, "short_chat", 30):
        assert 64 <= (turn.prompt_tokens or 0) <= 256
        assert 64 <= turn.max_tokens <= 128
    for turn in made(smollm2, "streaming_heavy", 60):
        assert 32 <= len(turn.prompt) <= 96
        assert turn.max_tokens == 512
    for name, low, high in (("long_rag", 1000, 3000), ("needle", 500, 3000)):
        sizes = [turn.prompt_tokens or 0 for turn in made(smollm2, name, 16)]
        assert low < min(sizes) < max(sizes) < high + 100
        assert max(sizes) > 2 * min(sizes)


def test_answers_end_by_themselves_unless_their_length_is_the_point(smollm2: Tokenizer) -> None:
    for name in NAMES:
        always, optional = name == "streaming_heavy", name in ("short_chat", "long_rag")
        assert made(smollm2, name, 1)[0].body.get("ignore_eos", False) == (always or optional)
        assert made(smollm2, name, 1, fixed_output=False)[0].body.get("ignore_eos", False) == always


def test_a_copy_has_room_for_the_passage_and_no_more(smollm2: Tokenizer) -> None:
    for turn in made(smollm2, "exact_copy", 30):
        assert turn.expected is not None
        assert content(turn) == f"Repeat exactly: {turn.expected}"
        assert turn.max_tokens == len(smollm2.encode(turn.expected, add_special_tokens=False))
        assert 100 <= turn.max_tokens <= 300


def test_the_needle_stands_once_anywhere_in_the_text(smollm2: Tokenizer) -> None:
    depths = []
    for turn in made(smollm2, "needle", 24):
        assert turn.expected is not None
        text = content(turn)
        sentence = text[text.index("The secret number of") :].split(".")[0]
        word = sentence.split()[4]
        assert sentence == f"The secret number of {word} is {turn.expected}"
        assert text.count(turn.expected) == 1
        assert text.endswith(f"What is the secret number of {word}?")
        depths.append(text.index(sentence) / len(text))
    assert min(depths) < 0.15
    assert max(depths) > 0.8
    assert 0.35 < float(np.mean(depths)) < 0.65


def test_tools_are_openai_s_and_one_of_them_fits_the_question(smollm2: Tokenizer) -> None:
    numbers = set()
    for turn in made(smollm2, "tools", 30):
        tools = turn.body["tools"]
        numbers.add(len(tools))
        assert turn.body["tool_choice"] == "required"
        for tool in tools:
            assert tool["type"] == "function"
            parameters = tool["function"]["parameters"]
            assert parameters["required"] == list(parameters["properties"])
        question = content(turn).split("\n\n")[-1]
        topic = next(word for word in ("weather", "time", "hotel", "train") if word in question)
        assert any(topic in tool["function"]["name"] for tool in tools)
    assert numbers == {2, 3}


def test_a_structured_answer_is_known_by_a_required_name(smollm2: Tokenizer) -> None:
    names = set()
    for turn in made(smollm2, "structured", 20):
        form = turn.body["response_format"]
        assert form["type"] == "json_schema"
        names.add(form["json_schema"]["name"])
        schema = form["json_schema"]["schema"]
        assert schema["additionalProperties"] is False
        assert turn.expected == f'"{schema["required"][0]}"'
        assert all(name in content(turn) for name in schema["required"])
    assert len(names) == 3


def test_prompts_of_a_bucket_differ_before_their_first_cache_block_ends(smollm2: Tokenizer) -> None:
    for name in ("short_chat", "long_rag", "structured", "tools"):
        texts = [content(turn)[:40] for turn in made(smollm2, name, 30)]
        assert len(set(texts)) == 30


def test_a_model_without_a_template_still_has_streaming_heavy() -> None:
    tokenizer = stories_tokenizer()
    (turn,) = made(tokenizer, "streaming_heavy", 1, max_model_len=512)
    assert isinstance(turn.prompt[0], int)
    with pytest.raises(BenchError, match="no chat template"):
        made(tokenizer, "short_chat", 1)


def test_a_mix_is_kept_to_within_one_request() -> None:
    mix = parse_mix("short_chat=0.7, long_rag=0.2,needle=0.1")
    chosen = [bucket.name for bucket in mixed(mix, 50, np.random.default_rng(1))]
    assert [chosen.count(name) for name in ("short_chat", "long_rag", "needle")] == [35, 10, 5]
    assert chosen != sorted(chosen)


@given(
    shares=st.lists(st.floats(0.001, 1000), min_size=1, max_size=len(NAMES)),
    count=st.integers(1, 300),
    seed=st.integers(0, 9),
)
def test_any_mix_has_each_bucket_as_often_as_its_share_says(shares: list[float], count: int, seed: int) -> None:
    mix = parse_mix(",".join(f"{name}={share}" for name, share in zip(NAMES, shares, strict=False)))
    chosen = mixed(mix, count, np.random.default_rng(seed))
    assert len(chosen) == count
    for bucket, share in mix:
        assert abs(chosen.count(bucket) - share / sum(shares) * count) < 1.001


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown bucket ''; there are short_chat"),
        ("short_cht", "unknown bucket 'short_cht'; did you mean 'short_chat'?"),
        ("short_chat=0", "share '0' of bucket 'short_chat' must be a number above 0"),
        ("short_chat=nan", "share 'nan'"),
        ("short_chat=-1", "share '-1'"),
        ("short_chat=", "share ''"),
        ("needle=1,needle=2", "bucket 'needle' stands there twice"),
        ("needle,", "unknown bucket ''"),
    ],
)
def test_errors_of_a_mix_name_the_part(text: str, words: str) -> None:
    with pytest.raises(BenchError) as caught:
        parse_mix(text)
    assert str(caught.value).startswith(f"mix {text!r}: ")
    assert words in str(caught.value)
