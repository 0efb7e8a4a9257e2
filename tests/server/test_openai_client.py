"""The official client against a real server: plain, streamed, n, logprobs, errors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import httpx
import openai
import pytest

from forebay.server.openai.fields import COMPLETION_FIELDS

MODEL = "tiny-chat"
HELLO: Any = [{"role": "user", "content": "Tell me of a little girl."}]
PROMPT = "Once upon a time"
TOOLS: Any = [{"type": "function", "function": {"name": "f"}}]


def test_completion(client: openai.OpenAI, http: httpx.Client) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=20, temperature=0)
    (choice,) = answer.choices
    assert choice.text.startswith(", there was a little girl named Lily")
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 20, 25)
    digest = http.get("/health").headers["x-forebay-profile"]
    assert answer.system_fingerprint == f"fp_{digest[:12]}"
    assert answer.object == "text_completion"


def test_prompt_shapes_agree(client: openai.OpenAI, http: httpx.Client) -> None:
    ids = http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    shapes: list[Any] = [PROMPT, [PROMPT], ids, [ids]]
    texts = {
        client.completions.create(model=MODEL, prompt=shape, max_tokens=8, temperature=0).choices[0].text
        for shape in shapes
    }
    assert len(texts) == 1


def test_several_prompts_and_choices_keep_their_order(client: openai.OpenAI) -> None:
    def texts(prompt: Any, n: int) -> list[str]:
        made = client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, seed=11, n=n)
        assert [choice.index for choice in made.choices] == list(range(len(made.choices)))
        return [choice.text for choice in made.choices]

    first, second = texts(PROMPT, 2), texts("The dog", 2)
    assert texts([PROMPT, "The dog"], 2) == first + second
    assert len({*first, *second}) == 4


def test_seed_repeats_and_is_reported(client: openai.OpenAI) -> None:
    raw = client.completions.with_raw_response.create(model=MODEL, prompt=PROMPT, max_tokens=16)
    seed = int(raw.headers["x-forebay-seed"])
    again = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=16, seed=seed)
    assert again.choices[0].text == raw.parse().choices[0].text
    assert raw.headers["x-forebay-max-tokens"] == "16"
    other = client.completions.with_raw_response.create(model=MODEL, prompt=PROMPT)
    assert other.headers["x-forebay-max-tokens"] == "256"
    assert other.headers["x-forebay-seed"] != raw.headers["x-forebay-seed"]


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_end_the_text(client: openai.OpenAI, stream: bool) -> None:
    made: Any = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=50, temperature=0, stop=["girl named", "zzz"], stream=stream
    )
    choices = [chunk.choices[0] for chunk in made] if stream else made.choices
    assert "".join(choice.text for choice in choices) == ", there was a little "
    assert choices[-1].finish_reason == "stop"


@pytest.mark.parametrize("n", [1, 3])
def test_streamed_completion_equals_the_whole_one(client: openai.OpenAI, n: int) -> None:
    request: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "max_tokens": 24, "seed": 5, "n": n, "logprobs": 2}
    whole = client.completions.create(**request)
    texts, reasons = [""] * n, [None] * n
    tokens: list[list[str]] = [[] for _ in range(n)]
    offsets: list[list[int]] = [[] for _ in range(n)]
    stream = client.completions.create(**request, stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)
    for chunk in chunks:
        assert chunk.usage is None
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
        tokens[choice.index] += choice.logprobs.tokens
        offsets[choice.index] += choice.logprobs.text_offset
        reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert tokens == [choice.logprobs.tokens for choice in whole.choices if choice.logprobs]
    assert offsets == [choice.logprobs.text_offset for choice in whole.choices if choice.logprobs]
    assert (last.choices, last.usage.completion_tokens) == ([], whole.usage.completion_tokens if whole.usage else 0)
    assert n == 1 or [c.choices[0].index for c in chunks] != sorted(c.choices[0].index for c in chunks)


def test_completion_logprobs(client: openai.OpenAI) -> None:
    made = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=20, temperature=0, logprobs=3)
    choice = made.choices[0]
    found: Any = choice.logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset) == 20
    assert "".join(found.tokens) == choice.text
    for token, offset, logprob, top in zip(
        found.tokens, found.text_offset, found.token_logprobs, found.top_logprobs, strict=True
    ):
        assert choice.text[offset : offset + len(token)] == token
        assert top[token] == logprob == max(top.values())
        assert len(top) == 3
        assert sum(map(math.exp, top.values())) <= 1.0001
    alone = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=3, seed=1, logprobs=0).choices[0].logprobs
    assert alone is not None
    assert [list(top) for top in alone.top_logprobs or ()] == [[token] for token in alone.tokens or ()]


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12, seed=1)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.refusal, choice.finish_reason) == ("assistant", None, "length")
    assert choice.message.content
    assert answer.object == "chat.completion"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    same = client.chat.completions.create(model=MODEL, messages=HELLO, max_completion_tokens=12, seed=1)
    assert same.choices[0].message.content == choice.message.content


def test_a_cached_prompt_is_reported(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "A prompt of some length that nobody has sent before, for the cache."}]
    usages = [client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1).usage for _ in range(2)]
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages if usage and usage.prompt_tokens_details]
    assert cached[0] == 0
    assert cached[1] is not None
    assert cached[1] >= 16


@pytest.mark.parametrize("n", [1, 2])
def test_streamed_chat_equals_the_whole_one(client: openai.OpenAI, n: int) -> None:
    request: dict[str, Any] = {
        "model": MODEL, "messages": HELLO, "max_tokens": 20, "seed": 9, "n": n, "logprobs": True, "top_logprobs": 2,
    }  # fmt: skip
    whole = client.chat.completions.create(**request)
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    *chunks, last = chunks
    for chunk in chunks[:n]:
        assert (chunk.choices[0].delta.role, chunk.choices[0].delta.content) == ("assistant", "")
    assert sorted(chunk.choices[0].index for chunk in chunks[:n]) == list(range(n))
    for index, expected in enumerate(whole.choices):
        mine = [chunk.choices[0] for chunk in chunks[n:] if chunk.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == expected.message.content
        assert [c.finish_reason for c in mine] == [None] * (len(mine) - 1) + [expected.finish_reason]
        logprobs = [entry for choice in mine if choice.logprobs for entry in choice.logprobs.content]
        assert expected.logprobs is not None
        assert logprobs == expected.logprobs.content
    assert last.choices == []
    assert last.usage == whole.usage or last.usage.prompt_tokens == whole.usage.prompt_tokens
    assert len({chunk.id for chunk in [*chunks, last]}) == 1


def test_chat_logprobs(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=10, temperature=0, logprobs=True, top_logprobs=4
    )
    entries: Any = made.choices[0].logprobs.content if made.choices[0].logprobs else None
    assert len(entries) == 10
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == made.choices[0].message.content
    for entry in entries:
        assert entry.top_logprobs[0].token == entry.token
        assert entry.logprob == entry.top_logprobs[0].logprob
        assert len(entry.top_logprobs) == 4


def test_errors_become_the_clients_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model=MODEL, messages=HELLO, tools=[{"type": "function", "function": {"name": "f"}}]
        )
    assert (refused.value.code, refused.value.param) == ("unsupported_field", "tools")
    with pytest.raises(openai.BadRequestError) as unknown:
        client.chat.completions.create(model=MODEL, messages=HELLO, extra_body={"temprature": 1})
    assert (unknown.value.code, unknown.value.param) == ("unknown_field", "temprature")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.completions.create(model=MODEL, prompt=PROMPT, temperature=-1, stream=True)
    assert (wrong.value.code, wrong.value.param) == ("invalid_value", "temperature")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt=PROMPT)


def test_our_own_sampling_fields(client: openai.OpenAI) -> None:
    greedy = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text
    for extra in ({"top_k": 1}, {"min_p": 0.999}):
        made = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=12, extra_body=extra)
        assert made.choices[0].text == greedy
    nucleus = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=12, top_p=1e-6)
    assert nucleus.choices[0].text == greedy


OURS = {name for name, field in COMPLETION_FIELDS.items() if field.ours}


@pytest.mark.parametrize("stream", [False, True])
def test_fields_that_change_logits(client: openai.OpenAI, stream: bool) -> None:
    def ask(**fields: Any) -> str:
        extra = {name: fields.pop(name) for name in [*fields] if name in OURS}
        made = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=30, stream=stream, extra_body=extra, **{"temperature": 0} | fields
        )
        return "".join(chunk.choices[0].text for chunk in made) if stream else made.choices[0].text

    plain = ask()
    tokens = client.post("/../tokenize", body={"prompt": plain, "add_special_tokens": False}, cast_to=object)["tokens"]
    often = max(tokens, key=tokens.count)
    for change in (
        {"presence_penalty": 2.0},
        {"frequency_penalty": 2.0},
        {"repetition_penalty": 5.0},
        {"logit_bias": {str(often): -100}},
        {"bad_token_ids": [often]},
    ):
        assert ask(**change) != plain, change
    assert ask(logit_bias={"300": 100}) == ask(allowed_token_ids=[300])
    whole = ask(stop=[plain[10:14]], include_stop_str_in_output=True)
    assert whole == plain[: plain.index(plain[10:14]) + 4]
    assert ask(stop=[plain[10:14]], min_tokens=30) == plain


def test_best_of_gives_the_most_probable(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": [PROMPT, "The dog"], "max_tokens": 10, "seed": 8, "logprobs": 0}
    every = client.completions.create(**asked, n=5)
    best = client.completions.create(**asked, n=2, best_of=5)
    means = [sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs) for c in every.choices]
    wanted = [
        every.choices[i].text for first in (0, 5) for i in sorted(range(first, first + 5), key=lambda i: -means[i])[:2]
    ]
    assert [choice.text for choice in best.choices] == wanted
    assert [choice.index for choice in best.choices] == [0, 1, 2, 3]
    assert best.usage == every.usage  # what was generated, not what was given
    unasked = client.completions.create(**asked | {"logprobs": None}, n=2, best_of=5)
    assert [choice.logprobs for choice in unasked.choices] == [None] * 4
    assert [choice.text for choice in unasked.choices] == wanted


@pytest.mark.parametrize("logprobs", [None, 2])
def test_echo_begins_with_the_prompt(client: openai.OpenAI, logprobs: int | None) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": [PROMPT, "The dog"], "max_tokens": 6, "temperature": 0, "n": 2}
    plain = client.completions.create(**asked, logprobs=logprobs)
    echoed = client.completions.create(**asked, logprobs=logprobs, echo=True)
    streamed: dict[int, list[Any]] = {i: [] for i in range(4)}
    for event in client.completions.create(**asked, logprobs=logprobs, echo=True, stream=True):
        streamed[event.choices[0].index].append(event.choices[0])
    for index, (one, other) in enumerate(zip(plain.choices, echoed.choices, strict=True)):
        prompt = asked["prompt"][index // 2]
        assert other.text == prompt + one.text
        assert "".join(piece.text for piece in streamed[index]) == other.text
        assert streamed[index][0].text == prompt
        if logprobs is None:
            assert other.logprobs is None
            continue
        count = len(one.logprobs.tokens)
        assert other.logprobs.token_logprobs[0] is None
        assert None not in other.logprobs.token_logprobs[1:]
        # the reference backend's last bits depend on the batch; the native one's are compared in tests/engine
        assert other.logprobs.token_logprobs[-count:] == pytest.approx(one.logprobs.token_logprobs, abs=1e-4)
        assert [at - len(prompt) for at in other.logprobs.text_offset[-count:]] == one.logprobs.text_offset
        pieces = [piece.logprobs.token_logprobs for piece in streamed[index] if piece.logprobs]
        assert [*itertools.chain.from_iterable(pieces)] == pytest.approx(other.logprobs.token_logprobs, abs=1e-4)
    assert echoed.usage.completion_tokens == plain.usage.completion_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_no_tokens_but_the_prompts_log_probabilities(client: openai.OpenAI, stream: bool) -> None:
    """How evaluation harnesses score a text."""
    asked: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "max_tokens": 0, "echo": True, "logprobs": 1}
    longer = client.completions.create(**asked | {"max_tokens": 3, "temperature": 0}).choices[0]
    if stream:
        events = [*client.completions.create(**asked, stream=True, stream_options={"include_usage": True})]
        text = "".join(event.choices[0].text for event in events[:-1])
        (logprobs,) = [event.choices[0].logprobs for event in events[:-1] if event.choices[0].logprobs]
        reason, usage = events[-2].choices[0].finish_reason, events[-1].usage
    else:
        made = client.completions.create(**asked)
        text, logprobs, usage = made.choices[0].text, made.choices[0].logprobs, made.usage
        reason = made.choices[0].finish_reason
    assert (text, reason, usage.completion_tokens) == (PROMPT, "length", 0)
    assert logprobs.token_logprobs == longer.logprobs.token_logprobs[: len(logprobs.tokens)]
    assert len(logprobs.tokens) == usage.prompt_tokens


def test_neutral_values_change_nothing(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8, seed=2)
    neutral: dict[str, Any] = {
        "n": 1, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "user": "someone", "store": False,
        "metadata": {"a": "b"}, "response_format": {"type": "text"}, "tool_choice": "none", "parallel_tool_calls": True,
        "service_tier": "auto", "modalities": ["text"], "prompt_cache_key": "k", "safety_identifier": "s",
    }  # fmt: skip
    same = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8, seed=2, **neutral)
    assert same.choices[0].message.content == plain.choices[0].message.content


@pytest.mark.parametrize("skip_special_tokens", [True, False])
def test_echoed_tokens_stand_where_their_offsets_say(client: openai.OpenAI, skip_special_tokens: bool) -> None:
    prompt = "Once upon a time</s>"  # the tokenizer adds <s>, which is not in the text; </s> is
    result = client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=4, seed=1, echo=True, logprobs=0,
        extra_body={"skip_special_tokens": skip_special_tokens, "ignore_eos": True},
    )  # fmt: skip
    (choice,) = result.choices
    found = choice.logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.text_offset is not None
    assert choice.text.startswith(prompt)
    assert found.tokens[0] == "<s>"
    ends = [*found.text_offset[2:], len(choice.text)]
    pieces = [choice.text[start:end] for start, end in zip(found.text_offset[1:], ends, strict=True)]
    assert pieces[1:] == found.tokens[2:]
    assert pieces[0] == found.tokens[1].lstrip(" ")
