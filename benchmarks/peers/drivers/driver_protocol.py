"""What every driver shares: lines of JSON on stdin and stdout, and the closed loop that all engines are put through.

Runs inside the engine's own environment, so it needs nothing but the standard library. ../README.md has the protocol.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TextIO

CONTEXT = 512  # tokens of a scored chunk; its second half counts, as in benchmarks/perplexity.py
FIRST_SCORED = CONTEXT // 2 + 1

Step = Iterable[tuple[int, list[int], bool]]  # (index of the request, its new tokens, whether it has ended)


class NoLogitsError(Exception):
    """The engine gives no logits of a prompt; it can go on with other jobs."""


class Engine(ABC):
    """What a driver asks of an engine."""

    version: str = ""
    facts: dict[str, Any]

    @abstractmethod
    def run(self, requests: list[dict[str, Any]], concurrency: int) -> list[dict[str, Any]]:
        """A record of each request, at most `concurrency` in flight; the next is submitted the moment one ends."""

    def score(self, chunk: list[int]) -> float:
        """Mean negative log-likelihood (nats) of tokens 257..511 of a chunk of 512, from an empty context."""
        raise NoLogitsError("this engine gives no logits of a prompt")


class SteppedEngine(Engine):
    """An engine without a loop of its own: it is stepped from here."""

    @abstractmethod
    def submit(self, index: int, token_ids: list[int], max_tokens: int) -> None:
        """Hand over one request: greedy, exactly max_tokens tokens, no reuse of earlier prompts."""

    @abstractmethod
    def step(self) -> Step:
        """Do some work; returns what became known by it."""

    def run(self, requests: list[dict[str, Any]], concurrency: int) -> list[dict[str, Any]]:
        records = [_new_record() for _ in requests]
        waiting = deque(enumerate(requests))
        running = 0
        while waiting or running:
            while waiting and running < concurrency:
                index, request = waiting.popleft()
                records[index]["sent_ns"] = time.monotonic_ns()
                self.submit(index, request["prompt_token_ids"], request["max_tokens"])
                running += 1
            outputs = self.step()
            now = time.monotonic_ns()
            for index, tokens, done in outputs:
                running -= done
                _add(records[index], now, tokens)
        return records


def _new_record() -> dict[str, Any]:
    return {"sent_ns": 0, "token_times_ns": [], "token_counts": [], "output_token_ids": []}


def _add(record: dict[str, Any], now: int, tokens: list[int]) -> None:
    if tokens:
        record["token_times_ns"].append(now)
        record["token_counts"].append(len(tokens))
        record["output_token_ids"].extend(tokens)


def serve(load: Callable[[dict[str, Any]], Engine]) -> None:
    """Load the engine as argv[1] says and answer jobs until stdin ends.

    A job that fails is answered with the error, and that is the end too: requests may be left over in the engine. Only
    "score" of an engine without logits is not.
    """
    out = _take_stdout()
    started = time.monotonic()
    try:
        engine = load(json.loads(sys.argv[1]))
    except Exception as error:
        traceback.print_exc()
        _send(out, {"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    load_s = time.monotonic() - started
    facts = {"ready": True, "load_s": load_s, "rss_mb": group_memory_mb("VmRSS"), "version": engine.version}
    _send(out, {**facts, "facts": engine.facts})
    for line in sys.stdin:
        try:
            _send(out, _answer(engine, json.loads(line)))
        except NoLogitsError as error:
            _send(out, {"error": str(error)})
        except Exception as error:
            traceback.print_exc()
            _send(out, {"error": f"{type(error).__name__}: {error}"})
            sys.exit(1)


def _answer(engine: Engine, job: dict[str, Any]) -> dict[str, Any]:
    if job["op"] == "score":
        return {"losses": [engine.score(chunk) for chunk in job["chunks"]]}
    _forget_peak()
    start_ns = time.monotonic_ns()
    records = engine.run(job["requests"], job["concurrency"])
    end_ns = time.monotonic_ns()
    for record, request in zip(records, job["requests"], strict=True):
        produced = len(record["output_token_ids"])
        if produced != request["max_tokens"] or sum(record["token_counts"]) != produced:
            raise ValueError(f"a request for {request['max_tokens']} tokens got {produced}")
    peak = group_memory_mb("VmHWM")
    return {"requests": records, "start_ns": start_ns, "end_ns": end_ns, "peak_rss_mb": peak}


def mean_loss(log_probabilities: list[float]) -> float:
    """Of the tokens of the scored half. Raises ValueError if one is missing or no number."""
    if len(log_probabilities) != CONTEXT - FIRST_SCORED or not all(map(math.isfinite, log_probabilities)):
        raise ValueError(f"got {len(log_probabilities)} log-probabilities, not {CONTEXT - FIRST_SCORED} finite ones")
    return -math.fsum(log_probabilities) / len(log_probabilities)


def _take_stdout() -> TextIO:
    """The real stdout for us alone; whatever the engine prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def _send(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def group_memory_mb(field: str) -> float:
    """VmRSS (now) or VmHWM (most since `_forget_peak`) of all processes of our group, in MB of 10^6 bytes."""
    return round(sum(_status_kib(pid, field) for pid in _group()) * 1024 / 1e6, 1)


def _group() -> list[int]:
    group = os.getpgrp()
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(name)) == group:
                pids.append(int(name))
        except OSError:
            continue  # it has ended
    return pids


def _status_kib(pid: int, field: str) -> int:
    try:
        with open(f"/proc/{pid}/status") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(field + ":"))
    except OSError:
        return 0


def _forget_peak() -> None:
    """Start VmHWM anew, so that loading does not count in the peak of a run."""
    for pid in _group():
        try:
            with open(f"/proc/{pid}/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            continue  # ended, or not ours to write: its peak then includes loading
