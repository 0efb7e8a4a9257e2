"""From exec to the first token: the server over HTTP, and the Python API, each in fresh processes."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from forebay.bench.facts import new_result
from forebay.bench.machine_load import Meter
from forebay.bench.result import Result, Run
from forebay.bench.server_process import ServerProcess, as_toml
from forebay.errors import BenchError
from forebay.profile import Profile
from forebay.weights.sources import resolve_source

LIMIT_S = 300.0

# Run in a fresh interpreter: argv is the profile and the moment of exec. What it measures first is its own start.
_PROBE = """
import sys, time
began = time.monotonic_ns()
import json, re
from pathlib import Path
from forebay import LLM, SamplingParams
imported = time.monotonic_ns()
llm = LLM(profile=Path(sys.argv[1]))
loaded = time.monotonic_ns()
llm.generate([[1]], SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True))
answered = time.monotonic_ns()
status = Path("/proc/self/status")
peak = re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text()) if status.exists() else None
print(json.dumps({
    "interpreter_s": (began - int(sys.argv[2])) / 1e9,
    "import_s": (imported - began) / 1e9,
    "load_s": (loaded - imported) / 1e9,
    "first_token_s": (answered - loaded) / 1e9,
    "total_s": (answered - int(sys.argv[2])) / 1e9,
    "peak_rss": int(peak[1]) * 1024 if peak else 0,
}))
"""

# name -> (what is started, what it is, unit); names that end in _s are what two documents are compared by
FIGURES = {
    "server_ready_s": ("server", "exec to ready line", "s"),
    "server_first_token_s": ("server", "ready line to first answer over HTTP", "s"),
    "server_total_s": ("server", "exec to first answer over HTTP", "s"),
    "server_peak_rss": ("server", "peak resident memory, server and engine", "B"),
    "python_interpreter_s": ("python", "exec to first line of Python", "s"),
    "python_import_s": ("python", "import LLM", "s"),
    "python_load_s": ("python", "load the model", "s"),
    "python_first_token_s": ("python", "loaded to first token", "s"),
    "python_total_s": ("python", "exec to first token", "s"),
    "python_peak_rss": ("python", "peak resident memory", "B"),
}


def measure_startup(
    profile: Profile,
    *,
    repeats: int = 5,
    label: str = "",
    on_run: Callable[[], None] = lambda: None,
) -> Result:
    """Start the server and the Python API `repeats` + 1 times each, in turn. The first start of each is told apart: it
    may find files outside the page cache, which the row "page cache" says; medians are of the others.

    Raises BenchError if one does not start, SetupError subclasses if the model cannot be had.
    """
    if repeats < 1:
        raise BenchError(f"repeats must be at least 1, got {repeats}", param="repeats")
    model = resolve_source(profile.model.source, progress=True)
    cached = cached_share(model)
    runs = []
    for _ in range(repeats + 1):
        runs.append(_run(profile))
        on_run()
    return new_result(
        "startup",
        label=label,
        loads=[run.load for run in runs],
        in_process=True,
        target={"model": profile.model.source},
        workload={"repeats": repeats, "model_cached_share": cached},
        rows=rows_of([run.values for run in runs]),
        runs=runs[1:],
    )


def _run(profile: Profile) -> Run:
    """Start both, and account for the machine; children that have ended are the target."""
    started_ns, before = time.monotonic_ns(), os.times()
    with Meter() as meter:
        values = {
            f"{path}_{key}": value
            for path, start in (("server", start_server), ("python", start_python))
            for key, value in start(profile).items()
        }
    after, facts = os.times(), meter.facts()
    used = sum(getattr(after, name) - getattr(before, name) for name in ("children_user", "children_system"))
    foreign = max(0.0, facts.foreign_share - used / facts.wall_s / (os.cpu_count() or 1))
    load = msgspec.structs.replace(facts, target_cores=used / facts.wall_s, foreign_share=foreign)
    return Run(started_ns=started_ns, load=load, values=values)


def rows_of(runs: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """A row per figure: the first start, and median and range of the others."""
    rows = []
    for name, (path, meaning, unit) in FIGURES.items():
        first, *others = [run[name] for run in runs]
        rows.append(
            {"path": path, "figure": meaning, "unit": unit, "first": first, "median": statistics.median(others),
             "range": [min(others), max(others)], "repeats": len(others)}
        )  # fmt: skip
    return rows


def start_server(profile: Profile) -> dict[str, float]:
    """Start `forebay serve`, ask for one token, stop it. Seconds; peak_rss in bytes. Raises BenchError."""
    with ServerProcess(profile) as server:
        ready = time.monotonic()
        with server.watched():
            first_answer(server.url)
            first_token_s = time.monotonic() - ready
        return {
            "ready_s": server.ready_s,
            "first_token_s": first_token_s,
            "total_s": server.ready_s + first_token_s,
            "peak_rss": float(server.peak_rss_bytes()),
        }


def first_answer(url: str) -> None:
    """Have one token made. Raises BenchError if there is no answer."""
    body = json.dumps({"model": _served(url), "prompt": [1], "max_tokens": 1, "temperature": 0, "ignore_eos": True})
    _ask(f"{url}/v1/completions", body.encode())


def _served(url: str) -> str:
    return str(_ask(f"{url}/v1/models")["data"][0]["id"])


def _ask(url: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            return json.loads(reply.read())
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise BenchError(f"{url} does not answer: {error}") from error


def start_python(profile: Profile) -> dict[str, float]:
    """Import, load and answer in a fresh interpreter. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        file = Path(folder) / "profile.toml"
        file.write_text(as_toml(profile), "utf-8")
        command = [sys.executable, "-P", "-c", _PROBE, str(file), str(time.monotonic_ns())]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"the Python API gave no token within {LIMIT_S:g} s") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise BenchError(f"the Python API did not start: {last[0]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def cached_share(model: Path) -> float | None:
    """Which share of a model's file(s) is in the page cache, by mincore(2), which reads nothing into it. None where the
    system does not say, or says it only of one's own files."""
    files = sorted(p for p in model.iterdir() if p.is_file()) if model.is_dir() else [model]
    pages = [_cached_pages(file) for file in files if file.stat().st_size]
    known = [found for found in pages if found is not None]
    if not known or len(known) < len(pages):
        return None
    return sum(cached for cached, _ in known) / sum(count for _, count in known)


def _cached_pages(file: Path) -> tuple[int, int] | None:
    """(pages in the cache, pages) of a file that is not empty."""
    if not sys.platform.startswith("linux") or not os.access(file, os.W_OK):
        return None
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        there = np.zeros(-(-len(view) // mmap.PAGESIZE), np.uint8)
        mincore = ctypes.CDLL(None).mincore
        mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        failed = mincore(view.ctypes.data, len(view), there.ctypes.data)
        del view  # or the file could not be unmapped
    return None if failed else (int((there & 1).sum()), len(there))
