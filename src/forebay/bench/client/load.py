"""Playing a workload against a server.

Open loop: a session starts at its moment on the clock, whatever else is open, so that a slow server cannot slow down
its own measurement ("coordinated omission"). Closed loop: `concurrency` users, each of whom starts the next session
when the one before has ended.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import resource
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from forebay.bench.client.endpoint import Endpoint, RequestEncoder
from forebay.bench.client.observer import NoObserver, Observer
from forebay.bench.client.pace import Pacer
from forebay.bench.client.pool import ConnectionPool
from forebay.bench.client.session import Part, Stage, play_session
from forebay.bench.plan import Session, Turn, Workload
from forebay.bench.record import RequestRecord
from forebay.errors import BenchError

try:
    import uvloop
except ImportError:  # not on every platform
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

__all__ = ["Endpoint", "Observer", "no_collector", "play", "run_load"]

LEAD_S = 0.05  # a request is written down so long before it is due


def run_load(
    workload: Workload, endpoint: Endpoint, observer: Observer | None = None, *, start_ns: int | None = None
) -> tuple[RequestRecord, ...]:
    """`play` in an event loop of its own, with the garbage collector off, so that its pauses are nobody's latency.

    Ctrl-C raises KeyboardInterrupt; `observer` has seen every request that ended before.
    """
    with no_collector(), _many_files(), asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(play(workload, endpoint, observer, start_ns=start_ns))


async def play(
    workload: Workload, endpoint: Endpoint, observer: Observer | None = None, *, start_ns: int | None = None
) -> tuple[RequestRecord, ...]:
    """Send everything, and return a record of every request that was sent, by index: its place among all turns of the
    workload. Turns after a failed one of their session are not sent.

    start_ns: the moment of CLOCK_MONOTONIC from which `at_s` counts; None: as soon as possible. Cancelled, it hangs up
    all requests that are open; those have no record. Raises BenchError if the workload cannot be sent or the endpoint
    has no address; whatever the server does is a failure in a record.
    """
    check_workload(workload)
    encoder = RequestEncoder(endpoint)
    records: list[RequestRecord] = []
    pool = await ConnectionPool.of(endpoint)
    try:
        with Pacer() as pacer:
            stage = Stage(
                encoder=encoder,
                pool=pool,
                pacer=pacer,
                observer=NoObserver() if observer is None else observer,
                timeout_s=endpoint.timeout_s,
                records=records,
            )
            begin = _open_loop if workload.concurrency is None else _closed_loop
            await begin(stage, workload, start_ns)
    except BaseExceptionGroup as group:  # of a task group: a bug, or a body that is no JSON
        raise group.exceptions[0] from group
    finally:
        pool.close()
        await asyncio.sleep(0)  # transports close in the next pass of the loop
    return tuple(sorted(records, key=lambda record: record.index))


def check_workload(workload: Workload) -> None:
    """Raises BenchError if it cannot be sent as it is."""
    if workload.concurrency is not None and workload.concurrency < 1:
        raise BenchError(f"concurrency={workload.concurrency} must be 1 or more", param="concurrency")
    for number, session in enumerate(workload.sessions):
        if not session.turns:
            raise BenchError(f"session {number} has no turns; leave it out", param="sessions")
        if session.at_s is not None and not 0 <= session.at_s < math.inf:
            raise BenchError(f"session {number}: at_s={session.at_s} must be 0 or more", param="at_s")
        for turn in session.turns:
            _check_turn(turn)


def _check_turn(turn: Turn) -> None:
    if isinstance(turn.prompt, list) and not turn.prompt:
        raise BenchError("a prompt without tokens or messages cannot be sent; give it some", param="prompt")
    if turn.body.get("stream") is False or turn.body.get("n") not in (None, 1):
        raise BenchError("body: latencies are measured on streams with n=1; leave out stream and n", param="body")
    for name in ("cancel_after_tokens", "read_bytes_per_s"):
        value = getattr(turn, name)
        if value is not None and not value > 0:
            raise BenchError(f"{name}={value} must be above 0", param=name)
    if not 0 <= turn.think_s < math.inf:
        raise BenchError(f"think_s={turn.think_s} must be 0 or more", param="think_s")


async def _open_loop(stage: Stage, workload: Workload, start_ns: int | None) -> None:
    parts = Parts(stage.encoder, workload.sessions)
    at_s = [session.at_s or 0.0 for session in workload.sessions]
    start_ns = time.monotonic_ns() + round(LEAD_S * 1e9) if start_ns is None else start_ns
    async with asyncio.TaskGroup() as group:
        for number in sorted(range(len(at_s)), key=lambda number: at_s[number]):
            intended_ns = start_ns + round(at_s[number] * 1e9)
            await stage.pacer.until(intended_ns - round(LEAD_S * 1e9))
            group.create_task(play_session(stage, parts.part(number), intended_ns))


async def _closed_loop(stage: Stage, workload: Workload, start_ns: int | None) -> None:
    assert workload.concurrency is not None
    places = min(workload.concurrency, len(workload.sessions))
    queue = _Queue(Parts(stage.encoder, workload.sessions), ahead=places)
    start_ns = time.monotonic_ns() if start_ns is None else start_ns

    async def place() -> None:
        free_ns = start_ns
        while (part := queue.take()) is not None:
            at_ns = start_ns + round((part.session.at_s or 0.0) * 1e9)
            free_ns = await play_session(stage, part, max(free_ns, at_ns))

    async with asyncio.TaskGroup() as group:
        for _ in range(places):
            group.create_task(place())


class Parts:
    """Sessions with their places in the workload, made on demand."""

    def __init__(self, encoder: RequestEncoder, sessions: tuple[Session, ...]) -> None:
        self._encoder = encoder
        self._sessions = sessions
        self._first = list(itertools.accumulate((len(s.turns) for s in sessions), initial=0))

    def __len__(self) -> int:
        return len(self._sessions)

    def part(self, number: int) -> Part:
        session = self._sessions[number]
        request = self._encoder.encode(session.turns[0], [])
        return Part(number=number, first_index=self._first[number], session=session, first_request=request)


class _Queue:
    """The sessions of a closed loop in order, a few of them written down before a place is free for them."""

    def __init__(self, parts: Parts, ahead: int) -> None:
        self._next = 0
        self._parts = parts
        self._ready: deque[Part] = deque()
        self._loop = asyncio.get_running_loop()
        for _ in range(ahead):
            self._prepare()

    def take(self) -> Part | None:
        if not self._ready:
            self._prepare()
        if not self._ready:
            return None
        self._loop.call_soon(self._prepare_ahead)  # once this one is on its way
        return self._ready.popleft()

    def _prepare_ahead(self) -> None:
        with suppress(BenchError):  # raised again when its turn has come
            self._prepare()

    def _prepare(self) -> None:
        if self._next < len(self._parts):
            self._ready.append(self._parts.part(self._next))
            self._next += 1


@contextmanager
def no_collector() -> Iterator[None]:
    """Collect now, and not again inside. Inside another one it has next to nothing to do."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


@contextmanager
def _many_files() -> Iterator[None]:
    """Let an overloaded open loop have as many connections as the system allows, not as the shell's default does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
