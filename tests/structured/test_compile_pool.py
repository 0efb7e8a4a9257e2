"""Compiling off the caller's thread: once per spec, within a time, bounded, and counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from forebay.core.grammar_spec import GrammarSpec
from forebay.errors import InvalidValueError, OverloadedError, UnavailableError
from forebay.structured import CompileCounters, CompileLimits, CompilePool, Grammar
from tests.structured.support import accepts, schema_spec, spec, tiny_backend

WAIT_S = 60


class GatedBackend:
    """The real backend behind a gate, to hold compilations as long as a test wants."""

    name, version = "llguidance", "gated"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.compiled: list[str] = []

    def compile(self, spec: GrammarSpec) -> Grammar:
        self.gate.wait(WAIT_S)
        self.compiled.append(spec.source)
        return tiny_backend().compile(spec)


@pytest.fixture
def backend() -> Iterator[GatedBackend]:
    gated = GatedBackend()
    yield gated
    gated.gate.set()


def pool_of(backend: GatedBackend, **limits: float) -> CompilePool:
    return CompilePool(backend, CompileLimits(**{"threads": 2, "timeout_s": WAIT_S, **limits}))  # type: ignore[arg-type]  # numbers by name


def test_the_same_spec_compiles_once_for_all_who_wait(backend: GatedBackend) -> None:
    pool = pool_of(backend)
    futures = [pool.submit(spec("regex", "a+", name=str(i))) for i in range(8)]
    other = pool.submit(spec("regex", "b+"))
    assert not any(f.done() for f in futures)
    assert not futures[0].cancel()
    backend.gate.set()
    grammars = {id(f.result(WAIT_S)) for f in futures}
    assert len(grammars) == 1
    other.result(WAIT_S)
    assert sorted(backend.compiled) == ["a+", "b+"]
    assert accepts(futures[0].result(), "aa")  # type: ignore[arg-type]  # of the one backend there is
    again = pool.submit(spec("regex", "a+"))
    assert again.done()
    assert again.result() is futures[0].result()
    counters = pool.counters
    assert (counters.compiled, counters.cache_hits, counters.refused) == (2, 1, 0)
    assert counters.compile_seconds > 0
    pool.close()


def test_what_nobody_waits_for_any_more_is_not_compiled(backend: GatedBackend) -> None:
    pool = pool_of(backend, threads=1, max_pending=2)
    first = pool.submit(spec("regex", "first"))
    left = pool.submit(spec("regex", "left"))
    del left
    last = pool.submit(spec("regex", "last"))
    backend.gate.set()
    first.result(WAIT_S)
    last.result(WAIT_S)
    assert backend.compiled == ["first", "last"]
    pool.close()


def test_what_cannot_be_enforced_is_an_error_of_its_request(backend: GatedBackend) -> None:
    backend.gate.set()
    pool = pool_of(backend)
    for param in ("first", "second"):
        error = pool.submit(schema_spec({"not": {}}, param=param)).exception(WAIT_S)
        assert isinstance(error, InvalidValueError)
        assert error.param == param
    assert pool.counters.refused == 2
    assert pool.counters.cache_hits == 0
    pool.close()


def test_a_slow_one_fails_in_time_and_its_worker_comes_back(backend: GatedBackend) -> None:
    pool = pool_of(backend, threads=1, timeout_s=0.05, max_late=2)
    slow = pool.submit(spec("regex", "slow"))
    error = slow.exception(WAIT_S)
    assert isinstance(error, InvalidValueError)
    assert "more than 0.05 s" in error.message
    assert (pool.counters.timed_out, pool.counters.late, pool.counters.refused) == (1, 1, 0)
    next_one = pool.submit(spec("regex", "next"))  # the only worker takes it, though the first still runs
    assert isinstance(next_one.exception(WAIT_S), InvalidValueError)
    with pytest.raises(OverloadedError) as caught:
        pool.submit(spec("regex", "third"))
    assert caught.value.retry_after > 0
    assert pool.counters.overloaded == 1
    backend.gate.set()
    late = [t for t in threading.enumerate() if t.name == "forebay-grammar-compile"]
    for thread in late:
        thread.join(WAIT_S)
    assert pool.counters.late == 0
    assert pool.submit(spec("regex", "slow")).done()  # what came of it is kept
    pool.close()


def test_the_queue_is_bounded(backend: GatedBackend) -> None:
    pool = pool_of(backend, max_pending=3)
    futures = [pool.submit(spec("regex", "x" * n)) for n in range(1, 4)]
    with pytest.raises(OverloadedError):
        pool.submit(spec("regex", "y"))
    assert pool.submit(spec("regex", "x")) is futures[0]
    backend.gate.set()
    assert not wait(futures, WAIT_S).not_done
    assert pool.submit(spec("regex", "y")).exception(WAIT_S) is None
    pool.close()


@pytest.mark.parametrize("limits", [{"max_entries": 2}, {"max_bytes": 150_000}])
def test_the_least_recently_used_goes_first(backend: GatedBackend, limits: dict[str, int]) -> None:
    backend.gate.set()
    pool = pool_of(backend, **limits)
    for pattern in ("a", "b", "a", "c"):
        pool.submit(spec("regex", pattern)).result(WAIT_S)
    assert pool.submit(spec("regex", "a")).done()
    assert pool.counters == CompileCounters(
        compiled=3, cache_hits=2, evicted=1, compile_seconds=pool.counters.compile_seconds
    )
    pool.submit(spec("regex", "b")).result(WAIT_S)
    assert pool.counters.compiled == 4
    pool.close()


def test_a_closed_pool_takes_no_more(backend: GatedBackend) -> None:
    pool = pool_of(backend)
    pool.close()
    with pytest.raises(UnavailableError):
        pool.submit(spec("regex", "a"))


def test_the_gil_is_free_while_it_compiles() -> None:
    """A large grammar compiles in the pool while this thread goes on counting."""
    pool = CompilePool(tiny_backend(), CompileLimits(timeout_s=WAIT_S))
    names = [f"property_{i}" for i in range(1500)]
    big = {"type": "object", "properties": {n: {"enum": [f"{n}-{k}" for k in range(8)]} for n in names}}
    future = pool.submit(schema_spec(big))
    turns = 0
    while not future.done():
        turns += 1
    assert future.exception() is None
    assert turns > 1000
    pool.close()
