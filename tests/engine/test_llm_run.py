"""LLM.run: prompts taken as places become free, results as they finish."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from forebay import LLM, SamplingParams
from forebay.core.messages import Event
from forebay.core.outputs import GenerateResult
from forebay.errors import InvalidValueError, UnavailableError
from tests.engine.conftest import stories_profile

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


def prompt_of(index: int) -> list[int]:
    return [1, 300 + index % 100, 301]


def lengths(values: Iterable[int]) -> Iterator[SamplingParams]:
    return (SamplingParams(temperature=0.0, max_tokens=value, ignore_eos=True) for value in values)


def most_open(results: list[GenerateResult]) -> int:
    """The most requests that were between received and finished at one time, by their events."""

    def at(events: tuple[Event, ...], kind: str) -> int:
        return next(event.t_ns for event in events if event.kind == kind)

    events = [result.completions[0].events for result in results]
    changes = [(at(e, "received"), 1) for e in events] + [(at(e, "finished"), -1) for e in events]
    return max(itertools.accumulate(change for _, change in sorted(changes)))


def at_rest(llm: LLM) -> bool:
    stats = llm.stats()
    return stats["blocks"]["used"] == stats["blocks"]["promised"] == stats["requests"]["running"] == 0


def test_results_come_as_they_finish_and_are_those_of_generate(llm: LLM) -> None:
    prompts: list[str | list[int]] = [prompt_of(i) for i in range(4)]
    each = list(lengths([20, 3, 9, 5]))
    found = list(llm.run(prompts, each))
    assert [index for index, _ in found] == [1, 3, 2, 0]
    expected = llm.generate(prompts, each)
    assert [dict(found)[i].completions[0].token_ids for i in range(4)] == [
        result.completions[0].token_ids for result in expected
    ]
    assert [text for _, text in sorted((i, r.text) for i, r in found)] == [result.text for result in expected]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_never_more_are_open_and_places_do_not_stay_empty(llm: LLM, concurrency: int) -> None:
    some = lengths([4, 1, 7, 2, 3, 1, 5, 2, 6, 1])
    found = [result for _, result in llm.run((prompt_of(i) for i in range(10)), some, concurrency=concurrency)]
    assert len(found) == 10
    assert most_open(found) == concurrency
    assert at_rest(llm)


def test_prompts_may_be_endless(llm: LLM) -> None:
    taken = itertools.count()
    pulled: list[int] = []

    def prompts() -> Iterator[list[int]]:
        for index in taken:
            pulled.append(index)
            yield prompt_of(index)

    with closing(llm.run(prompts(), lengths(itertools.cycle([6, 40])), concurrency=2)) as found:
        assert pulled == []
        first = [next(found) for _ in range(5)]
        assert len({index for index, _ in first}) == 5
        assert len(pulled) <= 5 + 1  # what is open, and none ahead of a free place
        assert not at_rest(llm)
    assert at_rest(llm)


def test_closing_aborts_what_is_open(llm: LLM) -> None:
    aborted = llm.metrics.value("forebay_requests_finished", "abort")
    found = llm.run([prompt_of(i) for i in range(3)], lengths([1, 100, 100]))
    assert next(found)[0] == 0
    found.close()
    assert at_rest(llm)
    assert llm.metrics.value("forebay_requests_finished", "abort") == aborted + 2
    assert llm.metrics.value("forebay_blocks", "used") == 0


def test_a_wrong_prompt_raises_when_its_turn_comes_and_aborts_the_others(llm: LLM) -> None:
    found = llm.run([[1, 2], [], [1, 3]], lengths([2, 100, 100]), concurrency=1)
    assert next(found)[0] == 0
    with pytest.raises(InvalidValueError, match="prompt is empty"):
        next(found)
    together = llm.run([[1, 2], [1, 3], []], GREEDY)
    with pytest.raises(InvalidValueError, match="prompt is empty"):
        next(together)
    assert at_rest(llm)


def test_without_a_limit_the_queue_is_the_limit() -> None:
    with LLM(profile=stories_profile(max_waiting=2, max_requests=2)) as llm:
        pulled: list[int] = []

        def prompts() -> Iterator[list[int]]:
            for index in range(9):
                pulled.append(index)
                yield prompt_of(index)

        found = llm.run(prompts(), GREEDY)
        next(found)
        assert len(pulled) < 9
        assert [index for index, _ in found] == list(range(1, 9))
        assert llm.metrics.value("forebay_requests_refused", "overloaded") == 0
        more = list(llm.run((prompt_of(i) for i in range(9)), GREEDY, concurrency=9))  # more than the engine takes
        assert sorted(index for index, _ in more) == list(range(9))


def test_sampling_parameters_that_run_out(llm: LLM) -> None:
    found = llm.run([prompt_of(0), prompt_of(1)], lengths([2]))
    with pytest.raises(InvalidValueError, match="more prompts than sampling"):
        list(found)
    assert at_rest(llm)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_wrong_concurrency_is_refused_at_once(llm: LLM, wrong: int) -> None:
    with pytest.raises(InvalidValueError, match="concurrency must be an integer of at least 1"):
        llm.run([], concurrency=wrong)


def test_a_text_is_one_prompt_and_no_prompt_is_no_result(llm: LLM) -> None:
    ((index, result),) = llm.run("Once upon a time", GREEDY)
    assert (index, result.text) == (0, llm.generate("Once upon a time", GREEDY)[0].text)
    assert list(llm.run([], GREEDY)) == []


def test_a_closed_llm() -> None:
    llm = LLM(profile=stories_profile())
    found = llm.run([prompt_of(i) for i in range(3)], lengths([1, 9, 9]))
    next(found)
    llm.close()
    with pytest.raises(UnavailableError):
        next(found)


def test_without_its_prefixes_a_prompt_is_computed_again(llm: LLM) -> None:
    prompt = list(range(300, 340))
    cached = [llm.generate(prompt, GREEDY)[0].completions[0].num_cached_tokens for _ in range(2)]
    assert cached[1] > 0
    assert llm.reset_prefix_cache()
    again = llm.generate(prompt, GREEDY)[0].completions[0]
    assert again.num_cached_tokens == 0
