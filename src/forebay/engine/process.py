"""The engine process: a loop that drains its input, steps, and sends one message per step.

Started by engine/client.py as `python -m forebay.engine.process`, which writes one line of JSON (SpawnOptions) to its
standard input and keeps that pipe open: its end means that the parent is gone. It never imports the server.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable

import msgspec
import zmq

from forebay.core.messages import (
    Abort,
    AddRequest,
    Control,
    Dead,
    EngineOutputs,
    FromEngine,
    Ready,
    RequestOutput,
    ToEngine,
)
from forebay.engine.build import build_engine_core
from forebay.engine.core import EngineCore
from forebay.engine.lifecycle import StepWatch, exit_with_parent
from forebay.engine.spawn import SpawnOptions
from forebay.errors import EngineDeadError, ForebayError, SetupError
from forebay.executor.faults import FaultyExecutor
from forebay.observe.logs import configure_logs
from forebay.profile import load_profile

logger = logging.getLogger("forebay.engine.process")  # __name__ is "__main__" here, and nobody configures that

# so many messages are taken before the next step, so that a flood of them cannot starve running requests
MAX_DRAIN = 1024
LINGER_MS = 2000
COMPILE_POLL_MS = 2  # between two looks at a grammar that is being compiled, while nothing else is to be done


class EngineLoop:
    """Input socket -> EngineCore -> output socket, in one thread."""

    def __init__(
        self, core: EngineCore, source: zmq.Socket[bytes], send: Callable[[FromEngine], None], watch: StepWatch
    ) -> None:
        self._core = core
        self._source = source
        self._send = send
        self._watch = watch
        self._decoder = msgspec.msgpack.Decoder(ToEngine)

    def run(self) -> None:
        """Until a "shutdown" control. Blocks in poll while there is nothing to do; never waits between steps."""
        idle = False
        while not self._core.stopping:
            if idle:
                self._source.poll(COMPILE_POLL_MS if self._core.is_compiling else None)
            self._drain()
            with self._watch:
                outputs = self._core.step()
            if outputs is not None:
                self._send(outputs)
            idle = outputs is None

    def _drain(self) -> None:
        outputs: list[RequestOutput] = []
        for _ in range(MAX_DRAIN):
            try:
                frame = self._source.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._handle(frame, outputs)
        outputs += self._core.collect()
        self._flush(outputs)

    def _handle(self, frame: bytes, outputs: list[RequestOutput]) -> None:
        try:
            message = self._decoder.decode(frame)
        except (msgspec.MsgspecError, ForebayError):
            logger.exception("dropped an input message of %d bytes that cannot be read", len(frame))
            return
        match message:
            case AddRequest():
                outputs += self._core.add(message)
            case Abort():
                outputs += self._core.abort(message.request_ids, message.reason)
            case Control():
                self._flush(outputs)  # a reply comes after what was done before the call
                self._send(self._core.control(message))

    def _flush(self, outputs: list[RequestOutput]) -> None:
        if outputs:
            self._send(EngineOutputs(outputs=tuple(outputs)))
            outputs.clear()


def run(options: SpawnOptions) -> int:
    """Build the engine, say Ready, serve until shutdown. What ends it early is sent as Dead. Returns the exit code."""
    context = zmq.Context()
    context.setsockopt(zmq.LINGER, LINGER_MS)
    source, sink = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    sink.set_hwm(0)  # what may be in flight is bounded by the requests the scheduler admits
    source.connect(options.input_address)
    sink.connect(options.output_address)
    encoder = msgspec.msgpack.Encoder()

    def send(message: FromEngine) -> None:
        sink.send(encoder.encode(message))

    try:
        configure_logs(options.log_level, "engine")
        _serve(options, source, send)
        return 0
    except Exception as error:
        # a wrong setting is the user's to read in one line; everything else wants its traceback
        if not isinstance(error, SetupError):
            logger.exception("the engine died")
        code = error.code if isinstance(error, ForebayError) else EngineDeadError.code
        send(Dead(error_code=code, error=str(error) if isinstance(error, ForebayError) else repr(error)))
        return 1
    finally:
        context.destroy(linger=LINGER_MS)


def _serve(options: SpawnOptions, source: zmq.Socket[bytes], send: Callable[[FromEngine], None]) -> None:
    fault = options.fault
    core = build_engine_core(
        load_profile(None, options.profile),
        wrap_executor=None if fault is None else lambda executor: FaultyExecutor(executor, fault),
    )
    logger.info("profile %s, answer class %s", core.info.profile_digest, core.info.answer_class)
    for name, explained in core.info.resolved.items():
        logger.debug("%s = %s", name, explained)
    gc.freeze()  # what is loaded stays: the collector need not go over it again and again
    try:
        send(Ready(info=core.info))
        with StepWatch.running(options.hang_limit_s) as watch:
            EngineLoop(core, source, send, watch).run()
    finally:
        core.close()


def main() -> None:
    # the parent decides when to stop: a Ctrl-C or a TERM to the whole group must not cut a drain short
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    options = msgspec.json.decode(sys.stdin.buffer.readline(), type=SpawnOptions)
    exit_with_parent(sys.stdin.fileno(), options.parent_pid)
    code = run(options)
    logging.shutdown()
    os._exit(code)  # no worker thread of a backend may hold up the end


if __name__ == "__main__":
    main()
