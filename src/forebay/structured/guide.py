"""Guides of requests: a matcher of a grammar that may still be being compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from forebay.core.grammar_spec import GrammarContract, GrammarSpec, grammar_version
from forebay.core.sampling_params import SamplingParams
from forebay.errors import ForebayError, InternalError
from forebay.structured.compile_pool import CompilePool
from forebay.structured.grammar import Grammar, GrammarBackend, MaskRow, Matcher, contract_of
from forebay.structured.reasoning_guide import ReasoningGuide


class GrammarGuide:
    """See core.guide.Guide. Children of one request share what is compiled; each follows its own output."""

    def __init__(self, compiling: Future[Grammar], param: str) -> None:
        self._compiling = compiling
        self._param = param
        self._matcher: Matcher | None = None
        self.error: ForebayError | None = None

    @property
    def ready(self) -> bool:
        return self._matcher is not None

    def collect(self) -> bool:
        """Take what was compiled, if it is there: then the guide is ready, or has an error."""
        if not self._compiling.done():
            return False
        try:
            self._matcher = self._compiling.result().matcher(self._param)
        except Exception as error:
            self.error = _as_forebay_error(error)
        return True

    def fill(self, row: MaskRow, ahead: Sequence[int] = ()) -> None:
        matcher, taken = self._started(), 0
        try:
            while taken < len(ahead) and matcher.accept(ahead[taken]):
                taken += 1
            if taken == len(ahead):
                matcher.fill_mask(row)
            else:
                row[:] = 0
            matcher.rollback(taken)
        except Exception as error:  # whatever it is, it must not end the step of others
            row[:] = 0
            self.error = _as_forebay_error(error)

    def accept(self, token_ids: Sequence[int]) -> bool:
        matcher = self._started()
        try:
            return all(matcher.accept(token) for token in token_ids)
        except Exception as error:
            self.error = _as_forebay_error(error)
            return False

    def _started(self) -> Matcher:
        if self._matcher is None:
            raise InternalError("a guide was used before it was ready")
        return self._matcher


def _as_forebay_error(error: Exception) -> ForebayError:
    return error if isinstance(error, ForebayError) else InternalError(f"the grammar failed: {error!r}")


MadeGuide = GrammarGuide | ReasoningGuide


class GuideMaker:
    """Gives the children of a request their guides.

    wait: compile before a request is taken, for an engine that nobody calls again when a grammar is ready.
    """

    def __init__(self, make_backend: Callable[[], GrammarBackend], *, wait: bool) -> None:
        self._backend = DeferredBackend(make_backend)
        self._pool = CompilePool(self._backend)
        self._wait = wait

    def guides(self, sampling: SamplingParams, end_token_ids: Iterable[int], count: int) -> list[MadeGuide]:
        """Those of `count` children; none if nothing holds their outputs. end_token_ids: what ends an output.

        Raises OverloadedError when too many grammars are being compiled.
        """
        spec, reasoning = sampling.grammar, sampling.reasoning
        inner: list[GrammarGuide | None] = [None] * count
        if spec is not None:
            compiling = self._pool.submit(spec)
            if self._wait:
                compiling.exception()
            inner = [GrammarGuide(compiling, spec.param) for _ in range(count)]
        if reasoning is not None:
            return [ReasoningGuide(reasoning, guide, end_token_ids) for guide in inner]
        return [guide for guide in inner if guide is not None]

    def contract(self, spec: GrammarSpec) -> GrammarContract:
        return contract_of(spec, self._backend)

    def close(self) -> None:
        self._pool.close()


class DeferredBackend:
    """llguidance, made when the first grammar is compiled: that takes a second, and many servers never need it."""

    name = "llguidance"

    def __init__(self, make: Callable[[], GrammarBackend]) -> None:
        self.version = grammar_version()
        self._make = make
        self._made: GrammarBackend | None = None
        self._lock = threading.Lock()

    def compile(self, spec: GrammarSpec) -> Grammar:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            backend = self._made
        return backend.compile(spec)
