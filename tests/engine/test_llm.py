"""The Python API on a real model, inline."""

from __future__ import annotations

import subprocess
import sys

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
