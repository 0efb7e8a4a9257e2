"""The ASGI pieces alone, driven with the messages a server would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from forebay.errors import NumericsError, OverloadedError
from forebay.server.streaming import AnswerResponse, EventStream, until_disconnect

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/"}


class Peer:
    """The other side of ASGI: what was sent to it, and when it hangs up."""

    def __init__(self, *, takes: int = 10**9) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self._takes = takes

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.sent) == self._takes:
            await asyncio.Event().wait()  # a full socket buffer
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Source:
    """Events 0, 1, 2 ...; raises `error` before event `fails_at`, waits for ever before event `hangs_at`."""

    def __init__(self, *, ends_at: int = 10**9, fails_at: int = -1, hangs_at: int = -1) -> None:
        self.ends_at, self.fails_at, self.hangs_at = ends_at, fails_at, hangs_at
        self.error: Exception = NumericsError("a NaN")
        self.hanging = asyncio.Event()
        self.closed = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            for i in range(self.ends_at):
                if i == self.fails_at:
                    raise self.error
                if i == self.hangs_at:
                    self.hanging.set()
                    await asyncio.Event().wait()
                yield b"data: %d\n\n" % i
        finally:
            self.closed = True


def stream(source: Source, write_timeout_s: float = 5.0) -> EventStream:
    return EventStream(source.events(), {"x-some": "header"}, write_timeout_s=write_timeout_s)


def test_a_stream_ends_with_done() -> None:
    async def run() -> None:
        peer, source = Peer(), Source(ends_at=2)
        await stream(source)(SCOPE, peer.receive, peer.send)
        assert peer.body == b"data: 0\n\ndata: 1\n\ndata: [DONE]\n\n"
        start = peer.sent[0]
        assert (start["type"], start["status"]) == ("http.response.start", 200)
        headers = dict(start["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert headers[b"x-some"] == b"header"
        assert b"content-length" not in headers
        assert peer.sent[-1]["more_body"] is False
        assert source.closed

    asyncio.run(run())


def test_an_error_before_the_first_event_is_raised() -> None:
    async def run() -> None:
        peer, source = Peer(), Source(fails_at=0)
        source.error = OverloadedError("full", retry_after=1)
        with pytest.raises(OverloadedError):
            await stream(source)(SCOPE, peer.receive, peer.send)
        assert peer.sent == []

    asyncio.run(run())


@pytest.mark.parametrize(("error", "code"), [(NumericsError("a NaN"), "numerics"), (ValueError("x"), "internal_error")])
def test_a_later_error_is_the_last_event(error: Exception, code: str) -> None:
    async def run() -> None:
        peer, source = Peer(), Source(fails_at=1)
        source.error = error
        await stream(source)(SCOPE, peer.receive, peer.send)
        first, last, rest = peer.body.split(b"\n\n")
        assert (first, rest) == (b"data: 0", b"")
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == code
        assert peer.sent[-1]["more_body"] is False

    asyncio.run(run())


def test_a_face_may_end_its_streams_in_its_own_way() -> None:
    async def run(source: Source) -> bytes:
        peer = Peer()
        response = EventStream(
            source.events(), {}, write_timeout_s=5.0, done=b"", failed=lambda error: b"failed: %b" % error.code.encode()
        )
        await response(SCOPE, peer.receive, peer.send)
        assert peer.sent[-1]["more_body"] is False
        return peer.body

    assert asyncio.run(run(Source(ends_at=2))) == b"data: 0\n\ndata: 1\n\n"
    assert asyncio.run(run(Source(fails_at=1))) == b"data: 0\n\nfailed: numerics"


def test_a_disconnect_closes_the_generator() -> None:
    async def run() -> None:
        peer, source = Peer(), Source(hangs_at=3)
        task = asyncio.create_task(stream(source)(SCOPE, peer.receive, peer.send))
        await source.hanging.wait()
        peer.gone.set()
        await task
        assert source.closed
        assert peer.body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"

    asyncio.run(run())


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    async def run() -> None:
        peer, source = Peer(takes=3), Source()
        with pytest.raises(TimeoutError):
            await stream(source, write_timeout_s=0.01)(SCOPE, peer.receive, peer.send)
        assert source.closed

    asyncio.run(run())


class ManualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until `now` is set."""

    now = 0.0

    def time(self) -> float:
        return self.now


async def pass_time(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ManualTimeLoop)
    loop.now += seconds
    for _ in range(3):
        await asyncio.sleep(0)  # what is due runs


def test_neither_the_engines_time_nor_many_short_writes_count_as_a_stalled_one() -> None:
    class SlowPeer(Peer):
        async def send(self, message: Any) -> None:
            await pass_time(4.0)
            await super().send(message)

    async def slow() -> AsyncGenerator[bytes, None]:
        for i in range(5):
            await pass_time(100.0)
            yield b"data: %d\n\n" % i

    async def run() -> None:
        peer = SlowPeer()
        await EventStream(slow(), {}, write_timeout_s=5.0)(SCOPE, peer.receive, peer.send)
        assert peer.body.endswith(b"data: 4\n\ndata: [DONE]\n\n")

    with asyncio.Runner(loop_factory=ManualTimeLoop) as runner:
        runner.run(run())


def test_a_stalled_write_is_noticed_when_its_own_time_is_up() -> None:
    async def run() -> None:
        peer, source = Peer(takes=3), Source()
        task = asyncio.create_task(stream(source, write_timeout_s=5.0)(SCOPE, peer.receive, peer.send))
        await pass_time(4.0)
        assert len(peer.sent) == 3  # it hangs since second 0 or 4
        await pass_time(0.9)
        assert not task.done()
        await pass_time(4.2)
        await pass_time(0.0)
        with pytest.raises(TimeoutError):
            await task
        assert source.closed

    with asyncio.Runner(loop_factory=ManualTimeLoop) as runner:
        runner.run(run())


def test_cancelling_the_response_closes_the_generator() -> None:
    async def run() -> None:
        peer, source = Peer(), Source(hangs_at=1)
        task = asyncio.create_task(stream(source)(SCOPE, peer.receive, peer.send))
        await source.hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.closed

    asyncio.run(run())


def test_a_whole_answer_is_dropped_when_nobody_waits() -> None:
    async def run() -> None:
        peer, source = Peer(), Source(hangs_at=1)

        async def answer() -> bytes:
            return b"".join([event async for event in source.events()])

        task = asyncio.create_task(AnswerResponse(answer, {})(SCOPE, peer.receive, peer.send))
        await source.hanging.wait()
        peer.gone.set()
        await task
        assert peer.sent == []

    asyncio.run(run())


def test_work_that_ends_first_gives_its_result() -> None:
    async def run() -> None:
        async def work() -> int:
            return 7

        assert await until_disconnect(Peer().receive, work()) == 7

    asyncio.run(run())
