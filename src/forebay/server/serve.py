"""The server process: socket, engine, signals, drain, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import ipaddress
import logging
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import uvicorn

from forebay import env
from forebay.engine.async_engine import AsyncEngine
from forebay.errors import SetupError
from forebay.observe.recorder import Recorder
from forebay.profile import Profile
from forebay.server.app import build_app
from forebay.server.gateway import Gateway
from forebay.server.http_protocol import LimitedHttp
from forebay.server.state import ServerSettings, ServerState

logger = logging.getLogger(__name__)

ENGINE_DIED = 1  # exit code
# How long a response that has ended may take to reach its client once the server is stopping.
FLUSH_S = 2.0
BACKLOG = 2048
# Longer than clients keep idle connections, so that it is they who close them and no request meets a closed one.
KEEP_ALIVE_S = 75


def serve(
    profile: Profile,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServerSettings | None = None,
    record: Path | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, or until the engine dies. Returns the process's exit code.

    record: a file that gets every step and every request (see Recorder).
    The port is taken before the model is loaded, and listens once it can answer. Raises SetupError subclasses.
    """
    began = time.monotonic()
    settings = settings or ServerSettings()
    with contextlib.closing(bind(host, port)) as listener:
        check_exposure(listener, settings)
        settings = replace(settings, local_only=settings.api_keys is None and not settings.no_auth)
        with asyncio.Runner(loop_factory=_uvicorn_config(settings).get_loop_factory()) as runner:
            return runner.run(_serve(profile, listener, settings, Recorder(record), began))


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet. Port 0 takes a free one. Raises SetupError."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise SetupError(f"cannot use --host {host}: {error}; give an address of this machine", param="host") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise SetupError(
            f"cannot listen on {host}:{port}: {error.strerror}; stop what uses it or choose another --port",
            param="port",
        ) from None
    return listener


def check_exposure(listener: socket.socket, settings: ServerSettings) -> None:
    """Raises SetupError if other machines can reach a server that asks for no key, unless `no_auth` says so."""
    address = listener.getsockname()[0]
    if settings.api_keys is not None or ipaddress.ip_address(address).is_loopback:
        return
    if not settings.no_auth:
        raise SetupError(
            f"other machines can reach {address} and no API keys are given: make some with `forebay keys add keys.toml "
            "NAME` and give --api-keys keys.toml, or let anyone in with --no-auth",
            param="host",
        )
    logger.warning("--no-auth: whoever can reach %s can use this server", address)


def _uvicorn_config(settings: ServerSettings, app: Gateway | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # without an app only the loop factory is asked for
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        http=functools.partial(LimitedHttp, settings=settings),  # type: ignore[arg-type]  # is called like a class
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here believes who a header says the client is
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(FLUSH_S),
    )


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers (ours drain first), with an event for "listens", and our own TLS context."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._tls = tls

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.ssl = self._tls
        await super().startup(sockets)
        self.listening.set()


class _Signals:
    """SIGTERM and SIGINT: the first asks for a drain, the second for an end at once."""

    def __init__(self) -> None:
        self.drain = asyncio.Event()
        self.stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        (self.stop if self.drain.is_set() else self.drain).set()


async def _serve(
    profile: Profile, listener: socket.socket, settings: ServerSettings, recorder: Recorder, began: float
) -> int:
    signals = _Signals()
    starting = asyncio.create_task(
        AsyncEngine.start(profile, recorder=recorder, log_level=env.log_level(), progress=True)
    )
    await _first(_finished(starting), signals.drain.wait())
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return 0
    engine = starting.result()
    try:
        gateway = build_app(engine, settings)
        server = _HttpServer(_uvicorn_config(settings, gateway), settings.tls)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await _first(server.listening.wait(), _finished(serving))
        gc.freeze()  # what is loaded stays: the collector need not go over it again and again
        _print_ready(gateway.state, listener, time.monotonic() - began)
        await _first(signals.drain.wait(), engine.dead.wait(), _finished(serving))
        await _drain(gateway.state, signals)
        died = engine.dead.is_set()
    finally:
        await engine.close()  # what still runs ends with an error event
    server.should_exit = True
    await serving
    return ENGINE_DIED if died else 0


async def _drain(state: ServerState, signals: _Signals) -> None:
    """Refuse new requests and let running ones finish: within the bound, or FLUSH_S if the engine is dead."""
    dead = state.engine.dead
    state.draining = True
    if dead.is_set():
        logger.error("the engine died: open requests were told, the server ends")
        await _first(state.idle.wait(), signals.stop.wait(), timeout_s=FLUSH_S)
        return
    limit = state.settings.drain_timeout_s
    logger.info("draining: %d requests run; at most %g s, a second signal ends it", state.in_flight, limit)
    await _first(state.idle.wait(), signals.stop.wait(), dead.wait(), timeout_s=limit)
    if state.in_flight and not dead.is_set():
        logger.warning("%d requests did not finish in time and are cut off", state.in_flight)


async def _finished(task: asyncio.Task[object] | asyncio.Task[None] | asyncio.Task[AsyncEngine]) -> None:
    await asyncio.wait([task])


async def _first(*events: Awaitable[object], timeout_s: float | None = None) -> None:
    """Wait until one of `events` has happened (or the timeout), and forget the others."""
    tasks = [asyncio.ensure_future(event) for event in events]
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _print_ready(state: ServerState, listener: socket.socket, seconds: float) -> None:
    """Two lines on stdout: where it listens, and a command that works (with a key in $API_KEY, where one is needed)."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    scheme = "http" if state.settings.tls is None else "https"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    info = state.engine.info
    print(f"forebay serves {info.model_name} on {url} (ready in {seconds:.1f} s, profile {info.profile_digest[:12]})")
    print(f"  {_curl(state, url)}", flush=True)


def _curl(state: ServerState, url: str) -> str:
    body: dict[str, object] = {"model": state.model_name}
    if state.engine.tokenizer.chat_template is None:
        path = "/v1/completions"
        body["prompt"] = "Once upon a time"
    else:
        path = "/v1/chat/completions"
        body["messages"] = [{"role": "user", "content": "What is a forebay?"}]
    text = msgspec.json.encode(body | {"max_tokens": 64}).decode().replace("'", "'\\''")
    key = "" if state.settings.api_keys is None else '-H "Authorization: Bearer $API_KEY" '
    return f"curl {url}{path} {key}-H 'Content-Type: application/json' -d '{text}'"
