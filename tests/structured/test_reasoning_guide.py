"""Reasoning before a grammar, and budgets, by masks and tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forebay.core.reasoning_spec import ReasoningSpec
from forebay.errors import ForebayError
from forebay.structured.grammar import MaskRow
from forebay.structured.reasoning_guide import ReasoningGuide

VOCAB, BEGIN, CLOSE, SPACE, END = 40, 30, 31, 32, 2
ALL = {*range(64)}  # two words of a mask, the bits beyond the vocabulary among them


class Letters:
    """An answer of exactly these tokens."""

    def __init__(self, *tokens: int) -> None:
        self._tokens = tokens
        self._at = 0
        self.error: ForebayError | None = None
        self.ready = True

    def collect(self) -> bool:
        return True

    def fill(self, row: MaskRow, ahead: Sequence[int] = ()) -> None:
        row[:] = 0
        token = (*self._tokens, END)[self._at + len(ahead)]
        row[token // 32] = 1 << token % 32

    def accept(self, token_ids: Sequence[int]) -> bool:
        for token in token_ids:
            if token != (*self._tokens, END)[self._at]:
                return False
            self._at += 1
        return True


def guide(*, inside: bool = False, budget: int | None = None, inner: Letters | None = None) -> ReasoningGuide:
    spec = ReasoningSpec(
        begin_token_id=BEGIN, end_token_id=CLOSE, inside=inside, budget=budget, closing_token_ids=(SPACE, CLOSE, SPACE)
    )
    return ReasoningGuide(spec, inner, [END])


def allowed(one: ReasoningGuide, *ahead: int) -> set[int]:
    row = np.zeros(2, np.uint32)
    one.fill(row, ahead)
    return {i for i in range(64) if row[i // 32] >> np.uint32(i % 32) & 1}


def test_the_answer_is_held_from_the_end_of_the_reasoning_on() -> None:
    one = guide(inner=Letters(5, 6))
    assert allowed(one) == {5, BEGIN}
    assert one.accept([BEGIN, 7, 8])
    assert allowed(one) == ALL - {END}
    assert not one.accept([END])
    assert one.accept([CLOSE])
    assert allowed(one) == {5}
    assert not one.accept([6])
    assert one.accept([5, 6, END])


def test_an_answer_without_reasoning() -> None:
    one = guide(inner=Letters(5))
    assert one.accept([5])
    assert allowed(one) == {END}


def test_a_budget_ends_the_reasoning() -> None:
    for inside in (False, True):
        one = guide(inside=inside, budget=2)
        assert allowed(one) == ALL
        assert one.accept([9, 9] if inside else [BEGIN, 9, 9])
        for forced in (SPACE, CLOSE, SPACE):
            assert allowed(one) == {forced}
            assert not one.accept([9])
            assert one.accept([forced])
        assert allowed(one) == ALL
        assert one.accept([BEGIN, 9, 9, 9, END])


@pytest.mark.parametrize("inner", [None, Letters(5)])
def test_a_budget_of_nothing(inner: Letters | None) -> None:
    one = guide(budget=0, inner=inner)
    assert allowed(one) == ({5} if inner else ALL - {BEGIN})
    assert not one.accept([BEGIN])
    opened = guide(budget=0, inside=True, inner=inner)
    assert allowed(opened) == {SPACE}


def test_masks_of_drafts_are_those_of_the_tokens_themselves() -> None:
    tokens = [BEGIN, 9, 9, SPACE, CLOSE, SPACE, 5, 6]
    for cut in range(len(tokens) + 1):
        ahead, one = guide(budget=2, inner=Letters(5, 6)), guide(budget=2, inner=Letters(5, 6))
        assert one.accept(tokens[:cut])
        assert allowed(ahead, *tokens[:cut]) == allowed(one)
    assert allowed(guide(budget=2, inner=Letters(5, 6)), BEGIN, END) == set()
