"""The front end's end of the wire: starts the engine process, sends, receives, and notices at once when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import zmq

from forebay.core.messages import Control, ControlReply, Dead, EngineInfo, EngineOutputs, FromEngine, Ready, ToEngine
from forebay.engine.spawn import SpawnOptions
from forebay.errors import EngineDeadError, ForebayError, InternalError, UnavailableError, error_named

logger = logging.getLogger(__name__)

LAST_WORDS_MS = 100  # how long messages of a process that has ended may still be on their way
MAX_SOCKET_PATH = 100  # sun_path holds 108 bytes on Linux and 104 on macOS


class EngineClient:
    """One engine process and the two sockets to it. Lives in one event loop, and is called from that loop only."""

    def __init__(self) -> None:
        self._on_outputs: Callable[[EngineOutputs], None] = lambda message: None
        self._on_death: Callable[[ForebayError], None] = lambda error: None
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._call_ids = count()
        self._error: ForebayError | None = None
        self._closing = False
        self.dead = asyncio.Event()  # set when the engine ended and nobody asked it to
        self._exited = asyncio.Event()
        self._ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._folder = Path(tempfile.mkdtemp(prefix="forebay-", dir=_short_temp_dir()))
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._sink = self._context.socket(zmq.PUSH)
        self._sink.set_hwm(0)  # what may wait here is bounded by AsyncEngine
        self._source = self._context.socket(zmq.PULL)
        self._source.set_hwm(0)

    async def start(self, profile: dict[str, Any], **options: Any) -> EngineInfo:
        """Start the process and wait until it is ready. Raises what its start raised (SetupError subclasses), or
        EngineDeadError if it ended without a word. `options`: the other fields of SpawnOptions."""
        addresses = [f"ipc://{self._folder / name}" for name in ("in", "out")]
        self._sink.bind(addresses[0])
        self._source.bind(addresses[1])
        spawn = SpawnOptions(
            profile=profile,
            input_address=addresses[0],
            output_address=addresses[1],
            parent_pid=os.getpid(),
            **options,
        )
        self._process = _spawn(spawn)
        watch = threading.Thread(
            target=self._wait_for_exit, args=(self._process, asyncio.get_running_loop()), name="forebay-engine-exit",
            daemon=True,
        )  # fmt: skip
        watch.start()
        self._reader = asyncio.create_task(self._run(self._process))
        return await asyncio.shield(self._ready)

    def attach(self, on_outputs: Callable[[EngineOutputs], None], on_death: Callable[[ForebayError], None]) -> None:
        """on_outputs is called with each message of outputs; on_death once, with the error that ends every request."""
        self._on_outputs, self._on_death = on_outputs, on_death
        if self._error is not None:
            on_death(self._error)

    def send(self, message: ToEngine) -> None:
        """Queue a message for the engine; never blocks. Raises EngineDeadError if there is none."""
        self.check()
        self._sink.send(self._encoder.encode(message), zmq.NOBLOCK)

    @property
    def alive(self) -> bool:
        return self._error is None

    def check(self) -> None:
        """Raise what ended the engine, if it has ended."""
        if self._error is not None:
            raise self._error

    async def call(self, op: str, args: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """A control call, answered between two steps. Raises TimeoutError, EngineDeadError, or InternalError with the
        engine's reason."""
        call_id = next(self._call_ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        try:
            self.send(Control(call_id=call_id, op=op, args=args))
            return await asyncio.wait_for(future, timeout_s)
        finally:
            del self._calls[call_id]

    async def close(self, grace_s: float = 5.0) -> None:
        """Ask the engine to shut down, kill it after `grace_s`, remove the sockets. What is open ends with
        UnavailableError."""
        self._closing = True
        if self.alive:
            self.send(Control(call_id=next(self._call_ids), op="shutdown"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), grace_s)
        await self.kill()

    async def kill(self) -> None:
        """End the process now, if it still runs, and release everything. May be called twice."""
        self._closing = True
        if self._process is not None and self._reader is not None:
            self._process.kill()
            await self._reader
            _close_lifeline(self._process)
        self._source.close()
        self._sink.close()
        self._context.term()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_for_exit(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            loop.call_soon_threadsafe(self._exited.set)

    async def _run(self, process: subprocess.Popen[bytes]) -> None:
        """Read until the process has ended, then what it still said, then report the death."""
        reader = asyncio.create_task(self._read())
        exited = asyncio.create_task(self._exited.wait())
        await asyncio.wait({reader, exited}, return_when=asyncio.FIRST_COMPLETED)
        if reader.done():
            logger.error("cannot read what the engine sends", exc_info=reader.exception())
            process.kill()
            await exited
        reader.cancel()
        await asyncio.wait({reader})
        try:
            while await asyncio.to_thread(self._source.poll, LAST_WORDS_MS):
                self._receive(self._source.recv(zmq.NOBLOCK))
        except Exception:
            logger.exception("cannot read the last that the engine sent")
        self._die(self._obituary(process.returncode))

    async def _read(self) -> None:
        """Take messages as they come, until cancelled. Raises what one of them raised."""
        loop, failed = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def take() -> None:
            """One message; the next one, if there is, in the loop's next turn, after those whom this one woke."""
            if failed.done():
                return
            try:
                self._receive(self._source.recv(zmq.NOBLOCK))
            except zmq.Again:
                return  # the descriptor tells of the next one: it signals changes, not states
            except Exception as error:
                failed.set_exception(error)
            else:
                loop.call_soon(take)

        descriptor = int(self._source.get(zmq.FD))
        loop.add_reader(descriptor, take)
        take()
        try:
            await failed
        finally:
            failed.cancel()
            loop.remove_reader(descriptor)

    def _receive(self, frame: bytes) -> None:
        message = self._decoder.decode(frame)
        match message:
            case EngineOutputs():
                self._on_outputs(message)
            case ControlReply():
                self._answer(message)
            case Ready():
                if not self._ready.done():
                    self._ready.set_result(message.info)
            case Dead():
                self._die(error_named(message.error_code, message.error))

    def _answer(self, reply: ControlReply) -> None:
        future = self._calls.get(reply.call_id)
        if future is None or future.done():
            return  # the caller's patience ended first
        if reply.error is None:
            future.set_result(reply.result)
        else:
            future.set_exception(InternalError(reply.error))

    def _obituary(self, code: int) -> ForebayError:
        if self._closing:
            return UnavailableError("the engine was closed")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return EngineDeadError(f"the engine process {how}; restart the server, the log above says why")

    def _die(self, error: ForebayError) -> None:
        """End everything that waits for the engine, once."""
        if self._error is not None:
            return
        if self._ready.done() and not self._closing and not isinstance(error, EngineDeadError):
            error = EngineDeadError(f"the engine died: {error.message}")
        self._error = error
        if not self._closing:
            if self._ready.done():  # before that, whoever starts it reports the error
                logger.error(error.message)
            self.dead.set()
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._calls.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen, even if whoever waited was cancelled
        self._on_death(error)


def _short_temp_dir() -> str | None:
    """None (the default) unless socket paths below it would be too long."""
    return "/tmp" if len(tempfile.gettempdir()) > MAX_SOCKET_PATH - len("/forebay-12345678/out") else None


def _spawn(options: SpawnOptions) -> subprocess.Popen[bytes]:
    """Start the engine process. Its standard input stays open: the end of that pipe tells it that we are gone."""
    # -P: a file in the working directory must not shadow a module; 2: the engine's prints belong to the log
    process = subprocess.Popen([sys.executable, "-P", "-m", "forebay.engine.process"], stdin=subprocess.PIPE, stdout=2)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it ended at once; its exit is reported like any other
        process.stdin.write(msgspec.json.encode(options) + b"\n")
        process.stdin.flush()
    return process


def _close_lifeline(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
