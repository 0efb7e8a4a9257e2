"""What a workload is made from: every choice a user has, checked against each other before any work is done."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from forebay.bench.workload.arrivals import MAX_ARRIVALS, parse_arrivals
from forebay.bench.workload.buckets import parse_mix
from forebay.bench.workload.lengths import parse_lengths
from forebay.bench.workload.prompts import EndpointKind
from forebay.bench.workload.traces import TraceKind, parse_window
from forebay.errors import BenchError

DEFAULT_REQUESTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """
    requests: how many sessions at most (a session of one turn is a request). None: as many as duration_s, the arrivals
      themselves or the trace hold, else 100. duration_s: no arrivals after this many seconds.
    input, output: lengths in tokens (lengths.py). In sessions of several turns, input counts each turn's new text
      without shared prefix and chat template; else it counts the whole prompt. mix: named buckets instead (buckets.py).
    arrivals (arrivals.py), concurrency or the times of a trace decide when; exactly one of them. A trace with
      concurrency gives lengths only.
    trace, trace_kind, window, scale_rate, scale_length, max_input, max_output: traces.py.
    turns, think_s: a session's number of turns (lengths.py), and the mean pause before each but the first.
    shared_prefix: tokens that all prompts begin with. token_ids: prompts for completions are sent as ids.
    cancel_share: of the sessions, the share whose last turn is cancelled midway. slow_share: of the requests, the share
      that is read at slow_bytes_per_s.
    fixed_output: every answer goes on to its max_tokens. text: a file to take the text from (text.py).
    """

    endpoint: EndpointKind = "completions"
    requests: int | None = None
    duration_s: float | None = None
    input: str = "256"
    output: str = "128"
    mix: str | None = None
    arrivals: str | None = None
    concurrency: int | None = None
    trace: Path | None = None
    trace_kind: TraceKind | None = None
    window: str | None = None
    scale_rate: float = 1.0
    scale_length: float = 1.0
    max_input: int | None = None
    max_output: int | None = None
    turns: str = "1"
    think_s: float = 0.0
    shared_prefix: int = 0
    cancel_share: float = 0.0
    slow_share: float = 0.0
    slow_bytes_per_s: float = 200.0
    fixed_output: bool = True
    token_ids: bool = True
    text: Path | None = None
    seed: int = 0
    max_model_len: int | None = None

    def plain(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}

    def changed(self, name: str) -> bool:
        """Whether a field has another value than its default."""
        return bool(getattr(self, name) != getattr(_DEFAULTS, name))


_DEFAULTS = WorkloadSpec()

# (a field that is given, another that must not be given with it, why)
_CONFLICTS = (
    ("arrivals", "concurrency", "both decide when requests are sent"),
    ("arrivals", "trace", "both decide when requests are sent"),
    ("concurrency", "duration_s", "a closed loop ends after its requests"),
    ("concurrency", "scale_rate", "a closed loop does not keep the trace's times"),
    ("trace", "duration_s", "take part of a trace with window"),
    ("trace", "mix", "both decide what is sent"),
    ("trace", "input", "both decide how long prompts are"),
    ("trace", "output", "both decide how long answers are"),
    ("trace", "turns", "a trace has requests of one turn"),
    ("mix", "input", "both decide how long prompts are"),
    ("mix", "output", "both decide how long answers are"),
    ("mix", "turns", "buckets are requests of one turn"),
    ("mix", "shared_prefix", "the buckets' prompts are made one by one"),
    ("mix", "endpoint", "each bucket has its own endpoint"),
    ("mix", "token_ids", "each bucket has its own form of prompt"),
)

# (a field that is given, the one it needs)
_NEEDS = (
    *((name, "trace") for name in ("trace_kind", "window", "scale_rate", "scale_length", "max_input", "max_output")),
    ("think_s", "turns"),
)

# field -> (least, most)
_BOUNDS: dict[str, tuple[float, float]] = {
    "requests": (1, MAX_ARRIVALS),
    "duration_s": (1e-3, 30 * 86_400.0),
    "concurrency": (1, 65_536),
    "scale_rate": (1e-6, 1e6),
    "scale_length": (1e-6, 1e3),
    "max_input": (1, math.inf),
    "max_output": (1, math.inf),
    "think_s": (0, 86_400.0),
    "shared_prefix": (0, 10_000_000),
    "cancel_share": (0, 1),
    "slow_share": (0, 1),
    "slow_bytes_per_s": (1e-3, 1e12),
    "seed": (0, 2**63 - 1),
    "max_model_len": (2, math.inf),
}


def check_spec(spec: WorkloadSpec) -> None:
    """Raises BenchError naming the fields that contradict each other, or the one with an impossible value."""
    for name, choices in (("endpoint", get_args(EndpointKind)), ("trace_kind", (None, *get_args(TraceKind)))):
        if getattr(spec, name) not in choices:
            raise BenchError(f"{name} {getattr(spec, name)!r} is unknown; there are {', '.join(filter(None, choices))}")
    for name, (least, most) in _BOUNDS.items():
        value = getattr(spec, name)
        if value is not None and not least <= value <= most:
            raise BenchError(f"{name} must be from {least:g} to {most:g}, got {value!r}")
    for one, other, why in _CONFLICTS:
        if spec.changed(one) and spec.changed(other):
            raise BenchError(f"{one} and {other} exclude each other: {why}; leave one of them out")
    for name, needed in _NEEDS:
        if spec.changed(name) and not spec.changed(needed):
            raise BenchError(f"{name} says nothing without {needed}; give {needed} too or leave {name} out")
    if spec.arrivals is None and spec.concurrency is None and spec.trace is None:
        raise BenchError("nothing says when requests are sent; give arrivals, concurrency or trace")
    if spec.changed("turns") and spec.endpoint != "chat":
        raise BenchError("turns: sessions of several turns are chats; leave turns out or set endpoint to 'chat'")
    _check_texts(spec)


def _check_texts(spec: WorkloadSpec) -> None:
    """What is written in a grammar of its own, and files."""
    for name in ("input", "output", "turns"):
        parse_lengths(getattr(spec, name), name)
    for text, parse in ((spec.arrivals, parse_arrivals), (spec.window, parse_window), (spec.mix, parse_mix)):
        if text is not None:
            parse(text)
    for name in ("trace", "text"):
        path: Path | None = getattr(spec, name)
        if path is not None and (path.is_dir() or not os.access(path, os.R_OK)):
            raise BenchError(f"{name} {str(path)!r} cannot be read; name a readable file")
