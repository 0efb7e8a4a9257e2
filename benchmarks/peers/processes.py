"""Processes under measurement: started in a group of their own, paused and woken as one, and always ended.

A group's processor time, memory and pause are those of all its processes, whatever the engine spawns.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

LOG_TAIL = 15  # lines shown when a process dies
GRACE_S = 10.0
POLL_S = 0.02  # between two looks whether a server is ready


class PeerError(Exception):
    """An engine cannot be installed, started or asked; the message is one sentence for the report."""

    def __str__(self) -> str:
        """Without the home of who measures: it stands in documents."""
        return super().__str__().replace(str(Path.home()), "~")


class ProcessGroup:
    """One command and everything it starts.

    The group stays in our session, so that when we die while it is paused the kernel wakes it with SIGHUP and it ends.
    stdout goes to a pipe if `piped`, else to the log with stderr.
    """

    def __init__(self, command: Sequence[str], *, env: dict[str, str], log: Path, piped: bool = False) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.ready: dict[str, Any] = {}
        self._started = time.monotonic()
        with log.open("wb") as out:
            try:
                self.process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else out,
                    stderr=out,
                    env={**os.environ, **env},
                    process_group=0,
                    bufsize=0,
                )
            except OSError as error:
                raise PeerError(f"{command[0]} cannot be started: {error.strerror}") from error

    def pids(self) -> list[int]:
        """Process ids of the group that live now."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _group_of(pid) == self.process.pid]

    def pause(self) -> None:
        """Stop the whole group (SIGSTOP): it uses no processor until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it: SIGTERM, then SIGKILL for what is left of the group."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def alive(self) -> bool:
        return self.process.poll() is None

    def age_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def last_words(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL:])

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Driver(ProcessGroup):
    """An engine inside a process of its own, asked over lines of JSON (README.md has the protocol).

    `ready` is its first line (load_s, rss_mb, version, facts) and start_s: from its exec to that line, the interpreter
    and its imports included. Raises PeerError if the engine does not load.
    """

    def __init__(self, command: Sequence[str], *, env: dict[str, str], log: Path, load_timeout_s: float) -> None:
        super().__init__(command, env=env, log=log, piped=True)
        self._pending = b""
        try:
            self.ready = self._answer(load_timeout_s)
            self.ready["start_s"] = self.age_s()
        except BaseException:
            self.close()
            raise

    def run(self, requests: list[dict[str, Any]], concurrency: int, *, timeout_s: float = 1800.0) -> dict[str, Any]:
        """Complete requests ({"prompt_token_ids", "max_tokens"}), `concurrency` at a time.

        Returns {"requests": [{"sent_ns", "token_times_ns", "token_counts", "output_token_ids"}], "start_ns", "end_ns",
        "peak_rss_mb"}, requests in the order given, times of CLOCK_MONOTONIC. Raises PeerError.
        """
        return self._ask({"op": "run", "requests": requests, "concurrency": concurrency}, timeout_s)

    def score(self, chunks: list[list[int]], *, timeout_s: float = 1800.0) -> list[float]:
        """Mean negative log-likelihood in nats of the second half of each chunk of 512 tokens. Raises PeerError."""
        losses = self._ask({"op": "score", "chunks": chunks}, timeout_s)["losses"]
        return [float(loss) for loss in losses]

    def _ask(self, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        data = memoryview(json.dumps(job).encode() + b"\n")
        try:
            while data:  # an unbuffered pipe may take less than it is given
                data = data[self.process.stdin.write(data) or 0 :]
        except OSError as error:
            raise PeerError(f"the driver ended: {self.last_words()}") from error
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        answer = json.loads(self._line(time.monotonic() + timeout_s))
        if "error" in answer:
            raise PeerError(str(answer["error"]))
        return dict(answer)

    def _line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise PeerError(f"no answer in time; its log ({self.log}) ends:\n{self.last_words()}")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise PeerError(f"the driver ended; its log ({self.log}) ends:\n{self.last_words()}")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line


class Server(ProcessGroup):
    """An OpenAI-compatible server on a port of this machine; `url` has no trailing slash.

    `ready`: start_s, from its exec to the answer to a first request of one token, once `wait_ready` has returned.
    """

    def __init__(self, command: Sequence[str], *, env: dict[str, str], log: Path, port: int, model: str) -> None:
        super().__init__(command, env=env, log=log)
        self.url = f"http://127.0.0.1:{port}"
        self.model = model  # the name requests must give

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it completes a request of one token. Raises PeerError."""
        body = {"model": self.model, "prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0}
        while not self._answers(body):
            if not self.alive():
                raise PeerError(f"the server ended; its log ({self.log}) ends:\n{self.last_words()}")
            if self.age_s() > timeout_s:
                raise PeerError(f"the server is not ready after {timeout_s:.0f} s; see {self.log}")
            time.sleep(POLL_S)
        self.ready = {"start_s": self.age_s()}

    def _answers(self, body: dict[str, Any]) -> bool:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return bool(reply.status == 200)
        except urllib.error.HTTPError as error:
            if error.code in (429, 500, 502, 503):
                return False
            raise PeerError(f"the server refuses a request: {error.code} {error.read()[:300]!r}") from error
        except OSError:
            return False


def _group_of(pid: int) -> int:
    """Process group of a process; -1 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    state, _parent, group = stat.rpartition(")")[2].split()[:3]
    return -1 if state == "Z" else int(group)


class PeakPss:
    """The most memory that processes held at one time while a block runs: their proportional set sizes, summed, in MB
    of 10^6 bytes. A page that several processes map counts in each by its share, so that the sum counts it once.

    Looked at once every `every_s`, since a look takes milliseconds of the processes' own time, and at the end.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], every_s: float = 3.0) -> None:
        self.mb = 0.0
        self._pids, self._every_s = pids, every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        self.mb = max(self.mb, round(sum(map(_pss_kib, self._pids())) * 1024 / 1e6, 1))


def _pss_kib(pid: int) -> int:
    """Of one process; 0 if it has ended or may not be read."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
