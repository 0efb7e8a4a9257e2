"""Conversations of several turns: each user turn is new text, and all that was said before is sent again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forebay.bench.plan import Session, Turn
from forebay.bench.workload.prompts import PromptMaker, body, user
from forebay.bench.workload.text import count_chat
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Lengths of one session's turns: new tokens of text (of the first turn: of the whole prompt), tokens of output,
    and the pause before each turn."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    thinks_s: tuple[float, ...]


def think_times(rng: np.random.Generator, mean_s: float, turns: int) -> tuple[float, ...]:
    """Pauses before each of a session's turns: none before the first, then exponential with this mean."""
    return (0.0, *(float(pause) for pause in rng.exponential(mean_s, turns - 1)))


def turn_overhead(tokenizer: Tokenizer) -> int:
    """Tokens that the chat template puts around an answer and a further user message, and one or two to spare."""
    first = user("x")
    more = [*first, {"role": "assistant", "content": "x"}, *first]
    return count_chat(tokenizer, more) - count_chat(tokenizer, first)


def answer_room(output: int) -> int:
    """Tokens to keep for an answer that is sent back: its text may have a few more when it is tokenized again."""
    return output + output // 8 + 4


def fitting_turns(plan: SessionPlan, overhead: int, max_model_len: int | None) -> int:
    """How many of the planned turns fit into the context, whatever is answered: prompts, answers and template."""
    if max_model_len is None:
        return len(plan.inputs)
    context = 0  # before each turn: all that was said, and the template around it
    for turn, (new, output) in enumerate(zip(plan.inputs, plan.outputs, strict=True)):
        context += new + (overhead if turn else 0)
        if context + output > max_model_len:
            return turn
        context += answer_room(output)
    return len(plan.inputs)


def make_session(plan: SessionPlan, maker: PromptMaker, *, ignore_eos: bool, turns: int) -> Session:
    """The first `turns` turns of the plan as requests. BenchError if there are none."""
    if turns < 1:
        raise BenchError(
            f"a first turn of {plan.inputs[0]} + {plan.outputs[0]} tokens does not fit max_model_len; shorten input or "
            "output"
        )
    return Session(turns=tuple(_turn(plan, maker, ignore_eos, index) for index in range(turns)))


def _turn(plan: SessionPlan, maker: PromptMaker, ignore_eos: bool, index: int) -> Turn:
    new = plan.inputs[index]
    return Turn(
        prompt=maker.of(new) if index == 0 else maker.user_text(new),
        prompt_tokens=new if index == 0 else None,
        max_tokens=plan.outputs[index],
        body=body(ignore_eos=ignore_eos),
        think_s=plan.thinks_s[index],
    )
