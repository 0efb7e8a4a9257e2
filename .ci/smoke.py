"""The README's first minute, in a clean clone: `make serve`, its curl line, SIGTERM; then what the install promises.

Usage: smoke.py WHEEL. Standard library only. Ends with "smoke: N passed, N failed" and exit code 1 if any failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

INSTALL_SECONDS = 600  # download, compile and fetch the model
READY_SECONDS = 6.0  # twice the 3 s promised, since CI machines are shared
IMPORT_SECONDS = 0.1
VENV_BYTES = 250 * 10**6
RESULTS: list[bool] = []


def check(what: str, ok: bool, found: object) -> None:
    RESULTS.append(ok)
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {found}", flush=True)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_ready(server: subprocess.Popen[bytes], port: int, log: Path, limit: float) -> None:
    """Return when /ready answers 200; raise when the server ends or the limit passes."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}:\n{log.read_text()[-4000:]}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as reply:
            if reply.status == 200:
                return
        time.sleep(0.02)
    raise RuntimeError(f"not ready after {limit} s:\n{log.read_text()[-4000:]}")


@contextlib.contextmanager
def started(command: list[str], cwd: Path, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, all of which is gone at the end whatever happens."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def child_of(pid: int) -> int:
    """The one child of `make`: the server, which took the recipe shell's place."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def make_serve(clone: Path, env: dict[str, str]) -> None:
    port, log = free_port(), clone.parent / "make-serve.log"
    began = time.monotonic()
    with started(["make", "serve", f"PORT={port}"], clone, env, log) as make:
        wait_ready(make, port, log, INSTALL_SECONDS)
        check("make serve from a clean clone", True, f"ready after {time.monotonic() - began:.0f} s")
        print(log.read_text(), flush=True)
        run_printed_curl(log.read_text())
        os.kill(child_of(make.pid), signal.SIGTERM)
        check("SIGTERM ends make serve", make.wait(timeout=60) == 0, f"exit code {make.returncode}")


def run_printed_curl(output: str) -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    curl = re.search(r"^\s*(curl (?:.*\\\n)*.*)$", plain, re.MULTILINE)
    if not curl:
        check("the printed curl line", False, "none was printed")
        return
    reply = subprocess.run(["bash", "-c", curl.group(1)], capture_output=True, text=True, timeout=120)
    text = ""
    with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
        choice = json.loads(reply.stdout)["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    check("the printed curl line answers", bool(text.strip()), repr(text or reply.stdout or reply.stderr))


def restart(clone: Path, env: dict[str, str]) -> None:
    """Start again with the model on disk, timed from the command to a 200 of /ready; best of 3."""
    seconds = []
    for _ in range(3):
        port, log = free_port(), clone.parent / "serve.log"
        began = time.monotonic()
        with started([".venv/bin/forebay", "serve", "--port", str(port)], clone, env, log) as server:
            wait_ready(server, port, log, 60)
            seconds.append(time.monotonic() - began)
            server.send_signal(signal.SIGTERM)
            code = server.wait(timeout=60)
        if code != 0:
            check("SIGTERM ends forebay serve", False, f"exit code {code}")
    check(f"ready in under {READY_SECONDS:g} s (promised: 3)", min(seconds) < READY_SECONDS, f"{min(seconds):.2f} s")


def installed(clone: Path) -> None:
    files = [f.lstat() for f in (clone / ".venv").rglob("*")]
    size = sum(f.st_blocks * 512 for f in files)
    check(f"the venv takes less than {VENV_BYTES // 10**6} MB", size < VENV_BYTES, f"{size / 1e6:.0f} MB")
    site = next((clone / ".venv/lib").glob("python*/site-packages"))
    heavy = [name for name in ("torch", "transformers", "triton", "ray") if (site / name).exists()]
    check("no torch, no transformers", not heavy, heavy or "none")
    code = "import time; t = time.perf_counter(); import forebay; print(time.perf_counter() - t)"
    python = str(clone / ".venv/bin/python")
    times = [float(subprocess.check_output([python, "-c", code], cwd="/")) for _ in range(5)]
    check(f"import forebay in under {IMPORT_SECONDS} s", min(times) < IMPORT_SECONDS, f"{min(times) * 1e3:.0f} ms")


def wheel(path: Path, scratch: Path) -> None:
    """The wheel carries the licence, the notice and a native module that loads from where pip puts it."""
    names = zipfile.ZipFile(path).namelist()
    for wanted in ("licenses/LICENSE", "licenses/NOTICE"):
        check(f"the wheel holds {wanted}", any(n.endswith(wanted) for n in names), path.name)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(scratch / "wheel")
    code = "import forebay.ops._native as native; print(native.__file__)"
    site = next(p for p in sys.path if p.endswith("site-packages"))
    # -S reads no .pth file, so that the dependencies are found and the editable forebay is not
    env = {**os.environ, "PYTHONPATH": f"{scratch / 'wheel'}:{site}"}
    loaded = subprocess.run([sys.executable, "-S", "-c", code], cwd="/", env=env, capture_output=True, text=True)
    check("the wheel's native module loads", loaded.returncode == 0, (loaded.stdout or loaded.stderr).strip()[-300:])


def main() -> int:
    repository = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="forebay-smoke-") as folder:
        scratch = Path(folder)
        wheel(Path(sys.argv[1]), scratch)
        clone = scratch / "forebay"
        subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)], check=True)
        drop = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        env = {k: v for k, v in os.environ.items() if k not in drop} | {"FOREBAY_CACHE_DIR": str(scratch / "cache")}
        make_serve(clone, env)
        restart(clone, env)
        installed(clone)
    failed = RESULTS.count(False)
    print(f"smoke: {len(RESULTS) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
