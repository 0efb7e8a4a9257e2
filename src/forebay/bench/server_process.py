"""`forebay serve` as a child process with a profile of its own: start, pause, resume, stop, and its last words."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil

from forebay.bench.interrupt import deferred
from forebay.bench.machine_load import process_tree
from forebay.errors import BenchError
from forebay.profile import SETTINGS, Profile, values
from forebay.profile.schema import PROFILE_VERSION

READY_S = 120.0  # a model may have to be read from a cold disk
STOP_S = 10.0  # after SIGTERM; nothing is open by then
LOG_LINES = 12  # of a failed server's log that are shown


class ServerProcess:
    """A server with `profile` on a free port of this machine; ready once made. Use as a context manager, or stop() it.

    url: where it listens. record: the file of its steps and requests. log: the file with its standard error.
    ready_s: from exec to the line that says it is ready.
    The files are in a temporary folder that goes with it, unless `folder` names one.
    Raises BenchError, with the end of its log, if it does not become ready within `ready_limit_s`.
    """

    def __init__(self, profile: Profile, *, folder: Path | None = None, ready_limit_s: float = READY_S) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="forebay-bench-") if folder is None else None
        self.folder = Path(self._temporary.name) if self._temporary else Path(folder or ".")
        self.profile = profile
        self.log, self.record = self.folder / "server.log", self.folder / "record.jsonl"
        self._paused = False
        began = time.monotonic()
        with deferred() as raise_interrupt:
            self._process = self._spawn()
        try:
            raise_interrupt()
            self.url = self._wait_ready(began + ready_limit_s)
        except BaseException:
            self.stop(at_once=True)
            raise
        self.ready_s = time.monotonic() - began

    def _spawn(self) -> subprocess.Popen[bytes]:
        file = self.folder / "profile.toml"
        file.write_text(as_toml(self.profile), "utf-8")
        command = [sys.executable, "-P", "-m", "forebay.cli", "serve", "--profile", str(file), "--port", "0"]
        with self.log.open("wb") as log:
            # A group of its own: a Ctrl-C at the terminal is ours to handle, and signals reach its engine too. The same
            # session: should we be killed, the kernel ends a group that is left behind paused.
            return subprocess.Popen(
                [*command, "--record", str(self.record)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )

    def _wait_ready(self, deadline: float) -> str:
        stdout, text = self._process.stdout, b""
        assert stdout is not None
        while (found := re.search(rb"on (http://\S+) ", text)) is None:
            readable, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise BenchError(f"the server was not ready in time; its log ends:\n{self.log_end()}")
            piece = os.read(stdout.fileno(), 4096)
            if not piece:
                raise BenchError(f"the server did not start: {self.log_end().removeprefix('forebay: ')}")
            text += piece
        return found[1].decode()

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> set[int]:
        """The server and its engine; empty once it has ended."""
        return process_tree(self._process.pid) if self._process.poll() is None else set()

    def check(self) -> None:
        """Raises BenchError with the end of its log if it has ended."""
        code = self._process.poll()
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise BenchError(f"the server {how} during the measurement; its log ends:\n{self.log_end()}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """For what needs it alive. Raises BenchError if it has died meanwhile, whatever else went wrong then."""
        try:
            yield
        except Exception as error:
            self._settle()
            try:
                self.check()
            except BenchError as death:
                raise death from error
            raise
        self._settle()
        self.check()

    def _settle(self) -> None:
        """A server whose engine was lost tells its clients before it ends; wait for it. The engine's process may still
        be seen for a moment, so its loop is asked."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=STOP_S):
                return
        except (OSError, http.client.HTTPException):  # 503, or nobody listens
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)

    def pause(self) -> None:
        """Stop all its threads where they are, so that it uses no processor. It must not have open requests."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._paused = False

    def stop(self, *, at_once: bool = False) -> None:
        """End it: asked to, and killed if it does not, or `at_once`."""
        if self._paused:
            self.resume()
        if self._process.poll() is None and not at_once:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def peak_rss_bytes(self) -> int:
        """Most memory that each of its processes has had resident, summed. 0 where the system does not say."""
        return sum(_peak_rss(pid) for pid in self.pids())

    def log_end(self, lines: int = LOG_LINES) -> str:
        try:
            text = self.log.read_text("utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.rstrip().splitlines()[-lines:]) or "(the log is empty)"

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # all of its group have ended
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def changed_settings(profile: Profile) -> dict[str, Any]:
    """Settings that are not at their default, by dotted name."""
    return {name: value for name, value in values(profile).items() if value != SETTINGS[name].default}


def as_toml(profile: Profile) -> str:
    """A profile as the file that says the same: every setting that is not at its default."""
    sections: dict[str, list[str]] = {}
    for dotted, value in changed_settings(profile).items():
        section, name = dotted.split(".")
        # a JSON string is a TOML string, and so is a number or a boolean
        sections.setdefault(section, []).append(f"{name} = {msgspec.json.encode(value).decode()}")
    parts = [f"version = {PROFILE_VERSION}", *(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items())]
    return "\n\n".join(parts) + "\n"


def _peak_rss(pid: int) -> int:
    """VmHWM of /proc; elsewhere what is resident now."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    except OSError:
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
