"""Reasoning before an answer that is held to a grammar, or has a budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from forebay.core.reasoning_spec import ReasoningSpec
from forebay.errors import ForebayError
from forebay.structured.grammar import MaskRow


class InnerGuide(Protocol):
    """What holds the answer proper; GrammarGuide."""

    error: ForebayError | None

    @property
    def ready(self) -> bool: ...
    def collect(self) -> bool: ...
    def fill(self, row: MaskRow, ahead: Sequence[int] = ()) -> None: ...
    def accept(self, token_ids: Sequence[int]) -> bool: ...


class _State:
    """Where an output stands, by its tokens alone."""

    __slots__ = ("closing", "num_tokens", "open", "started")

    def __init__(self, *, inside: bool) -> None:
        self.started = inside  # whether there is reasoning is known
        self.open = inside
        self.num_tokens = 0
        self.closing = 0  # of the closing tokens, how many have been forced

    def copy(self) -> _State:
        other = _State(inside=self.started)
        other.open, other.num_tokens, other.closing = self.open, self.num_tokens, self.closing
        return other


class ReasoningGuide:
    """See core.guide.Guide: anything while the model reasons, until its budget is spent; then what `inner` allows, or
    anything. With an `inner`, reasoning cannot end the output.
    """

    def __init__(self, spec: ReasoningSpec, inner: InnerGuide | None, end_token_ids: Iterable[int]) -> None:
        self._spec = spec
        self._inner = inner
        self._ends = tuple(end_token_ids) if inner is not None else ()
        self._state = _State(inside=spec.inside)

    @property
    def ready(self) -> bool:
        return self._inner is None or self._inner.ready

    @property
    def error(self) -> ForebayError | None:
        return None if self._inner is None else self._inner.error

    def collect(self) -> bool:
        return self._inner is None or self._inner.collect()

    def fill(self, row: MaskRow, ahead: Sequence[int] = ()) -> None:
        state = self._state.copy() if ahead else self._state
        said: list[int] = []
        for token in ahead:
            if not self._may_follow(state, token):
                row[:] = 0
                return
            if self._step(state, token):
                said.append(token)
        if (forced := self._forced(state)) is not None:
            row[:] = 0
            _allow(row, forced, True)
        elif state.open:
            row[:] = ~np.uint32(0)
            for token in self._ends:
                _allow(row, token, False)
        else:
            self._fill_inner(row, said)
            if not state.started:
                _allow(row, self._spec.begin_token_id, self._spec.budget != 0)

    def accept(self, token_ids: Sequence[int]) -> bool:
        for token in token_ids:
            if not self._may_follow(self._state, token):
                return False
            if self._step(self._state, token) and self._inner is not None and not self._inner.accept([token]):
                return False
        return True

    def _fill_inner(self, row: MaskRow, ahead: Sequence[int]) -> None:
        if self._inner is None:
            row[:] = ~np.uint32(0)
        else:
            self._inner.fill(row, ahead)

    def _forced(self, state: _State) -> int | None:
        """The one token that may come next, if reasoning is being ended."""
        budget, closing = self._spec.budget, self._spec.closing_token_ids
        spent = state.open and budget is not None and state.num_tokens >= budget
        return closing[state.closing] if (spent or state.closing) and state.closing < len(closing) else None

    def _may_follow(self, state: _State, token: int) -> bool:
        forced = self._forced(state)
        if forced is not None:
            return token == forced
        if not state.started and self._spec.budget == 0:
            return token != self._spec.begin_token_id
        return not (state.open and token in self._ends)

    def _step(self, state: _State, token: int) -> bool:
        """Move on by a token. True: it belongs to the answer."""
        spec = self._spec
        if self._forced(state) is not None:
            state.closing += 1
            state.open = state.open and token != spec.end_token_id
            return False
        if not state.started:
            state.started = True
            state.open = token == spec.begin_token_id
            return not state.open
        if not state.open:
            return True
        state.open = token != spec.end_token_id
        state.num_tokens += state.open
        return False


def _allow(row: MaskRow, token: int, allowed: bool) -> None:
    bit = np.uint32(1 << token % 32)
    row[token // 32] = row[token // 32] | bit if allowed else row[token // 32] & ~bit
