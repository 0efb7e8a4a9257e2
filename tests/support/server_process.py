"""A real `forebay serve` on a free port."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx

READY_S = 60.0


class ServeCommand:
    """`forebay serve` as a child process. `url` is where it listens; `log` is a file with its stderr; `headers`,
    such as a key, go with what is asked here."""

    def __init__(self, arguments: list[str], log: Path, headers: Mapping[str, str] | None = None) -> None:
        self.log = log
        self.headers = dict(headers or {})
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forebay.cli", "serve", *arguments, "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self.ready_line, self.curl_line = self._read_line(), self._read_line()
        found = re.search(r"https?://\S+", self.ready_line)
        assert found, f"no address in {self.ready_line!r}; the log says:\n{log.read_text()}"
        self.url = found[0]

    def _read_line(self) -> str:
        """A line of stdout, or "" if the process ends first."""
        stdout, line = self.process.stdout, b""
        assert stdout is not None
        deadline = time.monotonic() + READY_S
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"no line within {READY_S} s; the log says:\n{self.log.read_text()}"
            byte = os.read(stdout.fileno(), 1)
            if not byte:
                break
            line += byte
        return line.decode()

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def engine_pid(self) -> int:
        """Process id of the engine, the server's one child that runs forebay.engine.process."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        pids = [int(pid) for file in children for pid in file.read_text().split()]
        engines = [pid for pid in pids if b"forebay.engine.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(engines) == 1, engines
        return engines[0]

    def metric(self, name: str) -> float:
        """A sample of /metrics by its full name with labels."""
        text = httpx.get(f"{self.url}/metrics", headers=self.headers).text
        values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(values[0]) if values else 0.0

    def stop(self) -> int:
        """SIGTERM, then the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@contextlib.contextmanager
def running_server(arguments: list[str], log: Path, headers: Mapping[str, str] | None = None) -> Iterator[ServeCommand]:
    """A server for the block; killed at its end if it still runs."""
    server = ServeCommand(arguments, log, headers)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Whether `condition`, asked over and over, becomes true in time. It should take a while itself (ask a server)."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True
