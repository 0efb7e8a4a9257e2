"""The Python API on a real model, inline."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from forebay import LLM, SamplingParams
from forebay.errors import (
    ContextLengthError,
    InvalidValueError,
    ModelSourceError,
    ProfileError,
    UnavailableError,
    UnsupportedFieldError,
)
from forebay.profile import Profile
from tests.engine.conftest import stories_profile

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)
PROMPTS = ["Once upon a time", "Lily and Tom", "The dog", "One day, a big"]


def blocks_used(llm: LLM) -> float:
    return llm.metrics.value("forebay_blocks", "used")


def test_generate_gives_results_in_order_and_batching_changes_nothing(llm: LLM) -> None:
    together = llm.generate(PROMPTS, GREEDY)
    assert [len(result.completions[0].token_ids) for result in together] == [24] * 4
    alone = [llm.generate(prompt, GREEDY)[0] for prompt in PROMPTS]
    assert [r.completions[0].token_ids for r in together] == [r.completions[0].token_ids for r in alone]
    first = together[0]
    assert first.text.startswith(", there was a little girl named Lily")
    assert first.prompt_token_ids == llm.tokenizer.encode(PROMPTS[0])
    assert first.completions[0].finish_reason == "length"
    assert first.completions[0].events[-1].kind == "finished"
    assert llm.generate(first.prompt_token_ids, GREEDY)[0].text == first.text
    mixed: list[str | list[int]] = [first.prompt_token_ids, PROMPTS[1]]
    assert llm.generate(mixed, GREEDY)[0].text == first.text


def test_the_reported_seed_repeats_the_answer(llm: LLM) -> None:
    hot = SamplingParams(temperature=1.5, max_tokens=48, n=3)
    first = llm.generate(PROMPTS[0], hot)[0]
    texts = [completion.text for completion in first.completions]
    assert len(set(texts)) > 1  # children draw on their own
    again = llm.generate(PROMPTS[0], SamplingParams(temperature=1.5, max_tokens=48, n=3, seed=first.seed))[0]
    assert [completion.text for completion in again.completions] == texts


def test_sampling_parameters_for_each_prompt(llm: LLM) -> None:
    short, long = llm.generate(PROMPTS[:2], [SamplingParams(max_tokens=2), SamplingParams(max_tokens=5)])
    assert (len(short.completions[0].token_ids), len(long.completions[0].token_ids)) == (2, 5)
    with pytest.raises(InvalidValueError, match="2 prompts but 1 sampling"):
        llm.generate(PROMPTS[:2], [GREEDY])


def test_stop_strings_and_logprobs(llm: LLM) -> None:
    whole = llm.generate(PROMPTS[0], GREEDY)[0].text
    stop = whole[10:17]
    result = llm.generate(PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=24, stop=(stop,), logprobs=2))[0]
    completion = result.completions[0]
    assert (completion.text, completion.finish_reason) == (whole[: whole.index(stop)], "stop")
    assert completion.logprobs is not None
    assert len(completion.logprobs) == len(completion.token_ids) < 24
    best = [(entry.top[0], entry.logprob) for entry in completion.logprobs]
    assert best == [((token, logprob), logprob) for token, (_, logprob) in zip(completion.token_ids, best, strict=True)]


def test_more_prompts_than_the_queue_holds() -> None:
    with LLM(profile=stories_profile(max_waiting=2, max_requests=2)) as llm:
        results = llm.generate([[1, 300 + i] for i in range(9)], SamplingParams(max_tokens=3, ignore_eos=True))
        assert [result.prompt_token_ids[1] for result in results] == list(range(300, 309))
        assert llm.metrics.value("forebay_requests_refused", "overloaded") == 0
        assert llm.metrics.value("forebay_requests_received") == 9
        with pytest.raises(InvalidValueError, match="n=3"):
            llm.generate("a", SamplingParams(n=3))


def test_nothing_runs_when_one_prompt_is_wrong(llm: LLM) -> None:
    before = llm.metrics.value("forebay_requests_received")
    with pytest.raises(ContextLengthError, match=r"the prompt has \d+ tokens and the context length is 256"):
        llm.generate(["Once", "upon a time " * 100], GREEDY)
    assert llm.metrics.value("forebay_requests_received") == before
    assert llm.generate([], GREEDY) == []


def test_stream_is_generate_in_pieces(llm: LLM) -> None:
    chunks = list(llm.stream(PROMPTS[0], GREEDY))
    assert len(chunks) == 24
    assert "".join(chunk.text for chunk in chunks) == llm.generate(PROMPTS[0], GREEDY)[0].text
    assert [chunk.finish_reason for chunk in chunks] == [None] * 23 + ["length"]


def test_streams_may_interleave_and_be_left(llm: LLM) -> None:
    whole = [llm.generate(prompt, GREEDY)[0].text for prompt in PROMPTS[:3]]
    first, second, third = (llm.stream(prompt, GREEDY) for prompt in PROMPTS[:3])
    texts = ["", "", ""]
    for _ in range(3):
        for index, stream in enumerate((first, second, third)):
            texts[index] += next(stream).text
    second.close()
    texts[0] += "".join(chunk.text for chunk in first)
    texts[2] += "".join(chunk.text for chunk in third)
    assert (texts[0], texts[2]) == (whole[0], whole[2])
    assert whole[1].startswith(texts[1])
    assert texts[1] != whole[1]
    assert blocks_used(llm) == 0


def test_chat_needs_a_template(llm: LLM) -> None:
    with pytest.raises(UnsupportedFieldError, match="no chat template"):
        llm.chat([{"role": "user", "content": "hi"}])


def test_closing() -> None:
    llm = LLM(profile=stories_profile())
    stream = llm.stream(PROMPTS[0], GREEDY)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(UnavailableError):
        list(stream)
    with pytest.raises(UnavailableError, match="make a new one"):
        llm.generate("a")


def test_settings_by_name_and_wrong_ones() -> None:
    with LLM(stories_profile().model.source, name="reference", block_size=4, num_blocks=80, max_model_len=64) as llm:
        assert (llm.info.block_size, llm.info.num_blocks, llm.info.max_model_len) == (4, 80, 64)
    with pytest.raises(ProfileError, match="block_sise"):
        LLM(block_sise=4)
    with pytest.raises(InvalidValueError, match="not both"):
        LLM(profile=Profile(), block_size=4)
    with pytest.raises(ModelSourceError):
        LLM("/no/such/model.gguf")


def test_import_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import forebay; print(time.perf_counter() - t)"
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(times) < 0.1


def test_min_tokens_holds_back_every_end(llm: LLM) -> None:
    whole = llm.generate(PROMPTS[0], GREEDY)[0].completions[0]
    end = whole.token_ids[6]
    first = whole.token_ids.index(end)
    stopped = SamplingParams(temperature=0.0, max_tokens=24, stop_token_ids=(end,))
    assert llm.generate(PROMPTS[0], stopped)[0].completions[0].token_ids == whole.token_ids[: first + 1]
    held = msgspec.structs.replace(stopped, min_tokens=first + 3)
    later = llm.generate(PROMPTS[0], held)[0].completions[0]
    assert end not in later.token_ids[: first + 2]
    assert len(later.token_ids) >= first + 3
    stop = llm.tokenizer.decode(whole.token_ids)[8:12]
    for least in (0, 20):
        asked = SamplingParams(temperature=0.0, max_tokens=24, stop=(stop,), min_tokens=least)
        answer = llm.generate(PROMPTS[0], asked)[0].completions[0]
        assert (stop in answer.text) == (least > 0)
        assert answer.token_ids == whole.token_ids[: len(answer.token_ids)]


def test_stop_tokens_end_the_text_and_are_shown_if_asked(llm: LLM) -> None:
    whole = llm.generate(PROMPTS[0], GREEDY)[0].completions[0]
    end = whole.token_ids[5]
    for shown in (False, True):
        asked = SamplingParams(
            temperature=0.0, max_tokens=24, ignore_eos=True, stop_token_ids=(end,), include_stop_str_in_output=shown
        )
        answer = llm.generate(PROMPTS[0], asked)[0].completions[0]
        count = whole.token_ids.index(end) + 1
        assert (answer.token_ids, answer.finish_reason) == (whole.token_ids[:count], "stop")
        kept = whole.token_ids[: count if shown else count - 1]
        assert answer.text == "".join(llm.tokenizer.token_text(token) for token in kept)


def test_allowed_bad_and_biased_tokens(llm: LLM) -> None:
    allowed = (261, 263, 300, 301)
    asked = SamplingParams(temperature=1.5, max_tokens=40, allowed_token_ids=allowed, bad_token_ids=(263,), seed=3)
    drawn = {*llm.generate(PROMPTS[0], asked)[0].completions[0].token_ids}
    assert len(drawn) > 1
    assert drawn <= {261, 300, 301}
    biased = SamplingParams(temperature=1.0, max_tokens=10, logit_bias={300: 100.0}, ignore_eos=True)
    assert llm.generate(PROMPTS[0], biased)[0].completions[0].token_ids == [300] * 10


def test_penalties_change_what_repeats(llm: LLM) -> None:
    looping = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True, allowed_token_ids=tuple(range(261, 281)))
    plain = llm.generate(PROMPTS[0], looping)[0].completions[0].token_ids
    for penalty in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 3.0}):
        punished = llm.generate(PROMPTS[0], msgspec.structs.replace(looping, **penalty))[0].completions[0].token_ids
        assert len({*punished}) > len({*plain})


def test_a_request_that_leaves_no_token_fails_alone(llm: LLM) -> None:
    every = tuple(range(llm.info.vocab_size))
    nothing = SamplingParams(bad_token_ids=every, max_tokens=4)
    neighbour = llm.stream(PROMPTS[1], GREEDY)
    first = next(neighbour)
    with pytest.raises(InvalidValueError, match="no token may be chosen at output position 0"):
        llm.generate(PROMPTS[0], nothing)
    text = first.text + "".join(chunk.text for chunk in neighbour)
    assert text == llm.generate(PROMPTS[1], GREEDY)[0].text


@pytest.mark.parametrize(
    ("asked", "param", "says"),
    [
        ({"bad_token_ids": (512,)}, "bad_token_ids", "from 0 to 511, got 512"),
        ({"stop_token_ids": (600,)}, "stop_token_ids", "got 600"),
        ({"allowed_token_ids": (5, 512)}, "allowed_token_ids", "got 512"),
        ({"logit_bias": {512: 1.0}}, "logit_bias", "got 512"),
        ({"min_tokens": 300}, "min_tokens", "at most"),
        ({"min_tokens": 2, "allowed_token_ids": (2,)}, "allowed_token_ids", "nothing but ends"),
    ],
)
def test_what_no_model_could_do_is_refused(llm: LLM, asked: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(InvalidValueError, match=says) as caught:
        llm.generate(PROMPTS[0], SamplingParams(**asked))
    assert caught.value.param == param


@pytest.mark.parametrize("settings", [{}, {"chunk_size": 3}, {"num_blocks": 32, "overcommit": 12.0}], ids=str)
def test_prompt_logprobs_are_those_of_generating_the_same(settings: dict[str, Any]) -> None:
    with LLM(profile=stories_profile(**{"backend.name": "native", **settings})) as llm:
        asked = SamplingParams(temperature=0.0, max_tokens=20, logprobs=3, ignore_eos=True)
        made = [result.completions[0] for result in llm.generate(PROMPTS, asked)]
        prompts = [llm.tokenizer.encode(prompt) for prompt in PROMPTS]
        whole = [prompt + answer.token_ids for prompt, answer in zip(prompts, made, strict=True)]
        scoring = SamplingParams(temperature=0.0, max_tokens=30, prompt_logprobs=3, n=2, ignore_eos=True)
        for _ in range(2):  # the second time the prefix cache holds them
            for prompt, answer, scored in zip(prompts, made, llm.generate(whole, scoring), strict=True):
                assert scored.prompt_logprobs is not None
                assert len(scored.prompt_logprobs) == len(scored.prompt_token_ids)
                assert scored.prompt_logprobs[0] is None
                assert None not in scored.prompt_logprobs[1:]
                assert scored.prompt_logprobs[len(prompt) :] == answer.logprobs
        if "overcommit" in settings:
            assert sum(len(record.preempted) for record in llm.recorder.last()) > 0


def test_a_prompt_of_one_token_has_nothing_to_score(llm: LLM) -> None:
    result = llm.generate([[1]], SamplingParams(max_tokens=2, prompt_logprobs=1))[0]
    assert result.prompt_logprobs == [None]
    assert llm.generate([[1, 403]], SamplingParams(max_tokens=2))[0].prompt_logprobs is None
