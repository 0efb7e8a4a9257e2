"""Sessions of several turns stay within the context, whatever the model answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.bench.plan import Message, Session, Turn
from forebay.bench.workload.prompts import PromptMaker
from forebay.bench.workload.sessions import SessionPlan, fitting_turns, make_session, think_times, turn_overhead
from forebay.bench.workload.text import TextSource, count_chat
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer


def messages(turn: Turn) -> list[Message]:
    return [message for message in turn.prompt if isinstance(message, dict)]


def longest_context(tokenizer: Tokenizer, session: Session, answers: list[str]) -> int:
    """Tokens that the server needs at most for a session with these answers, by rendering all of it."""
    history: list[Message] = []
    longest = 0
    for turn, answer in zip(session.turns, answers, strict=True):
        history += messages(turn)
        longest = max(longest, count_chat(tokenizer, history) + turn.max_tokens)
        history.append({"role": "assistant", "content": answer})
    return longest


@settings(max_examples=25, deadline=None)
@given(
    inputs=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    output=st.integers(1, 60),
    limit=st.integers(150, 600),
    seed=st.integers(0, 1000),
)
def test_whatever_is_answered_fits(smollm2: Tokenizer, inputs: list[int], output: int, limit: int, seed: int) -> None:
    source = TextSource(smollm2, seed=seed)
    maker = PromptMaker(smollm2, source, "chat", token_ids=True)
    first, *later = inputs
    plan = SessionPlan((maker.least - 1 + first, *later), (output,) * len(inputs), (0.0,) * len(inputs))
    turns = fitting_turns(plan, turn_overhead(smollm2), limit)
    assert turns >= 1
    session = make_session(plan, maker, ignore_eos=True, turns=turns)
    answers = [smollm2.decode(source.cut(output)) for _ in range(turns)]
    assert longest_context(smollm2, session, answers) <= limit


def test_turns_are_left_out_only_when_they_do_not_fit(smollm2: Tokenizer) -> None:
    plan = SessionPlan((50, 20, 20, 20), (30,) * 4, (0.0,) * 4)
    overhead = turn_overhead(smollm2)
    assert 5 <= overhead <= 20
    for limit in range(80, 400, 7):
        turns = fitting_turns(plan, overhead, limit)
        least = 50 + 30 * turns + (20 + overhead) * (turns - 1)
        if turns < 4:  # one more would not have fitted, or only just
            assert least + 30 + 20 + overhead > limit - 10 * turns
    assert fitting_turns(plan, overhead, 400) == fitting_turns(plan, overhead, None) == 4


def test_each_later_turn_is_new_text_of_its_length(smollm2: Tokenizer) -> None:
    maker = PromptMaker(smollm2, TextSource(smollm2), "chat", token_ids=True)
    plan = SessionPlan((60, 25, 40), (10, 20, 30), (0.0, 1.5, 2.5))
    session = make_session(plan, maker, ignore_eos=True, turns=3)
    assert [turn.prompt_tokens for turn in session.turns] == [60, None, None]
    assert [turn.max_tokens for turn in session.turns] == [10, 20, 30]
    assert [turn.think_s for turn in session.turns] == [0, 1.5, 2.5]
    assert count_chat(smollm2, messages(session.turns[0])) == 60
    texts = [messages(turn)[0]["content"] for turn in session.turns]
    assert [len(smollm2.encode(text, add_special_tokens=False)) for text in texts[1:]] == [25, 40]
    assert len({text[:20] for text in texts}) == 3


def test_pauses_are_exponential_and_never_before_the_first_turn() -> None:
    rng = np.random.default_rng(3)
    pauses = [think_times(rng, 2.0, 5) for _ in range(4000)]
    assert {pause[0] for pause in pauses} == {0.0}
    later = np.array([pause[1:] for pause in pauses])
    assert abs(later.mean() - 2) < 0.06
    assert abs(later.std() / later.mean() - 1) < 0.03
    assert think_times(rng, 0.0, 3) == (0, 0, 0)


def test_a_first_turn_that_does_not_fit_is_refused(smollm2: Tokenizer) -> None:
    maker = PromptMaker(smollm2, TextSource(smollm2), "chat", token_ids=True)
    plan = SessionPlan((60,), (100,), (0.0,))
    assert fitting_turns(plan, 10, 159) == 0
    assert fitting_turns(plan, 10, 160) == 1
    with pytest.raises(BenchError, match=r"first turn of 60 \+ 100 tokens does not fit max_model_len"):
        make_session(plan, maker, ignore_eos=True, turns=0)
