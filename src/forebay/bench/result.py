"""The one JSON document every measurement leaves behind, and how it is read and written.

Durations are seconds, sizes bytes, rates per second, unless a name says otherwise. Interval pairs are the bounds of a
95 % interval (bench/statistics.py says which); a figure that too few requests or runs stand behind has none.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec

from forebay.bench.files import read_bounded
from forebay.bench.record import RequestRecord
from forebay.errors import BenchError

FORMAT = "forebay-bench"
VERSION = 1
MAX_BYTES = 2**30  # of a result file once unpacked

Interval = tuple[float, float]


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Of one latency. `intervals`: for some of the figures, by name ("mean", "p50", "p95", "p99")."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    intervals: dict[str, Interval] = {}


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one or more runs, seen from one boundary ("client_send" or "server_receive").

    duration_s: from the first intended send to the last end, summed over runs. Latencies: completed requests only, None
    where there are none. send_lag: sent - intended. goodput: requests a second within the SLO; slo_attained: their
    share of all requests but cancelled ones, so a failure is a miss. correct: share of the answers that were checked.
    """

    boundary: str
    duration_s: float
    requests: int
    completed: int
    cancelled: int
    failures: dict[str, int]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    request_rate: float
    output_token_rate: float
    total_token_rate: float
    ttft_s: Distribution | None = None
    itl_s: Distribution | None = None
    tpot_s: Distribution | None = None
    e2e_s: Distribution | None = None
    queue_s: Distribution | None = None
    send_lag_s: Distribution | None = None
    goodput: float | None = None
    slo_attained: float | None = None
    correct: float | None = None
    counted_by: dict[str, int] = {}
    intervals: dict[str, Interval] = {}


class LoadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Who used the processor during a run.

    client_cores, target_cores: processor seconds per second of the measuring client, and of the measured processes when
    they are on this machine (None: elsewhere). foreign_share, steal_share: of all processor time of this machine, what
    other processes took, and what the hypervisor took.
    """

    wall_s: float
    client_cores: float
    target_cores: float | None
    foreign_share: float
    steal_share: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One pass of a workload. Times of `records` count from started_ns (CLOCK_MONOTONIC, so that a server's record of
    the same machine can be laid beside them)."""

    started_ns: int
    load: LoadFacts
    records: tuple[RequestRecord, ...] = ()
    values: dict[str, float] = {}


class StepSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The server's steps during the runs, as columns of equal length. start_s counts from the first run's start."""

    start_s: list[float] = []
    duration_s: list[float] = []
    requests: list[int] = []
    prefill_tokens: list[int] = []
    decode_tokens: list[int] = []
    waiting: list[int] = []
    blocks_used: list[int] = []
    blocks_cached: list[int] = []
    blocks_promised: list[int] = []
    blocks_free: list[int] = []
    slack_slots: list[int] = []


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of the matched requests went between the two boundaries, as distributions in seconds by the name
    of the stretch, in the order they follow each other."""

    matched: int
    unmatched: int
    stretches: dict[str, Distribution]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """kind: serve, offline, latency, ops, startup, sweep or compare. `valid` is False if any reason stands against the
    figures; `rows` are those of kinds that measure no requests (and the points of a sweep)."""

    kind: str
    label: str
    created: str
    seed: int
    command: list[str] = []
    machine: dict[str, Any] = {}
    versions: dict[str, str] = {}
    target: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    slo: str | None = None
    valid: bool = True
    invalid_reasons: list[str] = []
    summary: Summary | None = None
    buckets: dict[str, Summary] = {}
    server: Summary | None = None
    reconciled: Reconciled | None = None
    steps: StepSeries | None = None
    runs: list[Run] = []
    rows: list[dict[str, Any]] = []
    format: str = FORMAT
    version: int = VERSION


def check_writable(path: Path) -> None:
    """Raises BenchError if no result can be written there. Leaves no file that was not there before."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        was_there = path.exists()
        with path.open("ab"):
            pass
        if not was_there:
            path.resolve().unlink()  # where a link leads, not the link
    except OSError as error:
        raise _not_writable(path, error) from error


def _not_writable(path: Path, error: OSError) -> BenchError:
    return BenchError(f"result file {path} cannot be written: {error.strerror}; name a writable file", param="output")


def write_result(result: Result, path: Path) -> None:
    """Write as JSON, packed if the name ends in .gz. Raises BenchError if the file cannot be written."""
    data = msgspec.json.format(msgspec.json.encode(result), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise _not_writable(path, error) from error


def read_result(path: Path) -> Result:
    """Raises BenchError if it is missing, too large, or no result of this version."""
    data = read_bounded(path, MAX_BYTES, "result file", "name one that --output wrote")
    try:
        result = msgspec.json.decode(data, type=Result)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BenchError(f"result file {path} is no result of forebay bench: {error}") from error
    if (result.format, result.version) != (FORMAT, VERSION):
        raise BenchError(
            f"result file {path} is {result.format} version {result.version}; this reads {FORMAT} {VERSION}"
        )
    return result
