"""Compiling off the caller's thread: each spec once, within a time, and kept for the next request."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary, ref

from forebay.core.grammar_spec import GrammarSpec
from forebay.errors import GrammarError, OverloadedError, UnavailableError
from forebay.structured.grammar import Grammar, GrammarBackend

_STACK_BYTES: Final = 16 * 2**20  # the parser of a deeply nested grammar recurses
_STACK_LOCK: Final = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLimits:
    """threads      specs that compile at once
    timeout_s    seconds one may take
    max_pending  specs that compile or wait for it; the next one is refused as overload
    max_late     compilations past their time that may still be running; while so many are, new specs are refused
    max_entries, max_bytes  what is kept of compiled grammars (bytes by their own estimate)
    """

    threads: int = 1
    timeout_s: float = 10.0
    max_pending: int = 64
    max_late: int = 2
    max_entries: int = 256
    max_bytes: int = 256 * 2**20


@dataclass(slots=True)
class CompileCounters:
    """Since the pool began. compile_seconds: of failed compilations too; late: still running past their time."""

    compiled: int = 0
    cache_hits: int = 0
    refused: int = 0
    timed_out: int = 0
    overloaded: int = 0
    evicted: int = 0
    late: int = 0
    compile_seconds: float = 0.0


class CompilePool:
    """Grammars by digest. Safe to use from any thread.

    A compilation that takes too long fails for those who wait for it; it cannot be interrupted, so it goes on in a
    thread of its own, bounded by the backend's limits, and what comes of it is kept for whoever asks again.
    """

    def __init__(self, backend: GrammarBackend, limits: CompileLimits | None = None) -> None:
        self.backend = backend
        self.counters = CompileCounters()
        self._limits = limits or CompileLimits()
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._num_bytes = 0
        # who waits for a future keeps it; one that nobody waits for any more is gone, and is never compiled
        self._pending: WeakValueDictionary[tuple[str, str], Future[Grammar]] = WeakValueDictionary()
        self._workers = ThreadPoolExecutor(self._limits.threads, "forebay-grammar")

    def submit(self, spec: GrammarSpec) -> Future[Grammar]:
        """The grammar of a spec, at once if it is kept. Requests for the same spec at the same time share one future.

        The future fails with GrammarError (param: the spec's field) for what cannot be enforced or takes too long.
        Whoever wants it to be compiled has to keep it. OverloadedError: too many wait already. UnavailableError: the
        pool is closed.
        """
        digest = spec.digest()
        with self._lock:
            kept = self._kept.get(digest)
            if kept is not None:
                self.counters.cache_hits += 1
                self._kept.move_to_end(digest)
                done: Future[Grammar] = Future()
                done.set_result(kept)
                return done
            key = (digest, spec.param)
            future = self._pending.get(key)
            if future is None:
                self._check_load(spec)
                future = self._pending[key] = self._begin(spec, key)
            return future

    def close(self) -> None:
        """Take no more; what compiles now is left to end by itself."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _check_load(self, spec: GrammarSpec) -> None:
        if len(self._pending) >= self._limits.max_pending or self.counters.late >= self._limits.max_late:
            self.counters.overloaded += 1
            raise OverloadedError(
                f"{spec.param}: too many grammars are being compiled; try again",
                retry_after=self._limits.timeout_s,
                param=spec.param,
            )

    def _begin(self, spec: GrammarSpec, key: tuple[str, str]) -> Future[Grammar]:
        future: Future[Grammar] = Future()
        future.set_running_or_notify_cancel()
        try:
            self._workers.submit(self._begin_work, spec, key, ref(future))
        except RuntimeError:
            raise UnavailableError("the server is stopping and compiles no more grammars", param=spec.param) from None
        return future

    def _begin_work(self, spec: GrammarSpec, key: tuple[str, str], wanted: ref[Future[Grammar]]) -> None:
        future = wanted()
        if future is not None:
            self._work(spec, key, future)

    def _work(self, spec: GrammarSpec, key: tuple[str, str], future: Future[Grammar]) -> None:
        """Watch one compilation, which runs in a thread of its own, until it ends or its time does."""
        result: Future[Grammar] = Future()
        _start_thread(lambda: self._compile(spec, result))
        late = False
        try:
            error = result.exception(self._limits.timeout_s)
        except TimeoutError:
            late, error = True, self._timed_out(spec, key[0], result)
        with self._lock:
            del self._pending[key]
            if error is None:
                self.counters.compiled += 1
                self._keep(key[0], result.result())
            elif isinstance(error, GrammarError) and not late:
                self.counters.refused += 1
        if error is None:
            future.set_result(result.result())
        else:
            future.set_exception(error)

    def _compile(self, spec: GrammarSpec, result: Future[Grammar]) -> None:
        start = time.perf_counter()
        grammar, failure = None, None
        try:
            grammar = self.backend.compile(spec)
        except BaseException as error:  # whoever waits for it gets it
            failure = error
        with self._lock:
            self.counters.compile_seconds += time.perf_counter() - start
        if grammar is not None:
            result.set_result(grammar)
        else:
            result.set_exception(failure)

    def _timed_out(self, spec: GrammarSpec, digest: str, result: Future[Grammar]) -> GrammarError:
        with self._lock:
            self.counters.timed_out += 1
            self.counters.late += 1
        result.add_done_callback(lambda late: self._end_late(digest, late))
        return GrammarError(
            f"{spec.param}: takes more than {self._limits.timeout_s:g} s to compile; make it simpler", param=spec.param
        )

    def _end_late(self, digest: str, result: Future[Grammar]) -> None:
        with self._lock:
            self.counters.late -= 1
            if result.exception() is None:
                self._keep(digest, result.result())

    def _keep(self, digest: str, grammar: Grammar) -> None:
        """Under the lock: keep it, and let the least recently used go."""
        if digest in self._kept:
            return
        self._kept[digest] = grammar
        self._num_bytes += grammar.num_bytes
        while len(self._kept) > 1 and (
            len(self._kept) > self._limits.max_entries or self._num_bytes > self._limits.max_bytes
        ):
            _, oldest = self._kept.popitem(last=False)
            self._num_bytes -= oldest.num_bytes
            self.counters.evicted += 1


def _start_thread(target: Callable[[], None]) -> None:
    """A thread with a deep stack. The depth is set for the process, so one at a time sets it, for a moment."""
    with _STACK_LOCK:
        before = threading.stack_size(_STACK_BYTES)
        try:
            threading.Thread(target=target, daemon=True, name="forebay-grammar-compile").start()
        finally:
            threading.stack_size(before)
