"""Steps and requests over time, in at most a few hundred equal bins whatever their number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay.bench.report.series import Floats
from forebay.bench.result import Result, StepSeries

LONGEST_S = 1e7  # a time beyond it is no time of a run
Columns = dict[str, Floats]
Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Batches:
    """edge_s: the bins' left ends, seconds from the start. Columns hold one figure a bin; `peak_tokens` is the largest
    step that began in it, the others are means of the bin's steps, an idle bin counts as no work."""

    edge_s: Floats
    columns: Columns
    count: int


def batches(steps: StepSeries, bins: int) -> Batches | None:
    """A step lasts from its start to its end; a bin without any holds what the step before left, or no work at all."""
    start = np.array(steps.start_s, dtype=float)
    usable = np.isfinite(start) & (np.abs(start) < LONGEST_S)
    if not usable.any():
        return None
    order = np.flatnonzero(usable)[np.argsort(start[usable], kind="stable")]
    start = start[order]
    end = start + np.clip(np.array(steps.duration_s, dtype=float)[order], 0.0, LONGEST_S)
    edges = np.linspace(float(start[0]), max(float(end.max()), float(start[0]) + 1e-6), bins + 1)
    last = np.clip(np.searchsorted(start, edges[1:], side="left") - 1, 0, None)  # newest step that began before the end
    first = np.searchsorted(start, edges[:-1], side="left")
    busy = end[last] > edges[:-1]
    columns: Columns = {}
    for name in StepSeries.__struct_fields__[2:]:
        values = np.array(getattr(steps, name), dtype=float)[order]
        columns[name] = _binned(values, first, last)
        if not name.startswith(("blocks_", "slack_")):
            columns[name] = np.where(busy, columns[name], 0.0)
    tokens = np.array(steps.prefill_tokens, dtype=float)[order] + np.array(steps.decode_tokens, dtype=float)[order]
    columns["peak_tokens"] = np.where(busy, _peaks(tokens, first, last), 0.0)
    columns["peak_waiting"] = np.where(busy, _peaks(np.array(steps.waiting, dtype=float)[order], first, last), 0.0)
    return Batches(edges[:-1], columns, start.size)


def _binned(values: Floats, first: Indices, last: Indices) -> Floats:
    """Mean of the steps that began in each bin; where none did, the newest before."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    number = last + 1 - first
    mean = (total[last + 1] - total[np.minimum(first, last + 1)]) / np.maximum(number, 1)
    return np.asarray(np.where(number > 0, mean, values[last]), dtype=float)


def _peaks(values: Floats, first: Indices, last: Indices) -> Floats:
    found = [values[a : b + 1].max() if b >= a else values[b] for a, b in zip(first, last, strict=True)]
    return np.array(found, dtype=float)


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """Requests of all runs on one axis, in seconds from the first run's start; the next one follows where one ends.

    meant_s, lag_s: one each, in order. failed, cancelled: (time, how) of their ends. starts_s: of the runs.
    """

    meant_s: Floats
    end_s: Floats
    lag_s: Floats
    failed: tuple[tuple[float, str], ...]
    cancelled_s: tuple[float, ...]
    starts_s: tuple[float, ...]

    def open_requests(self, bins: int) -> tuple[Floats, Floats]:
        """Left edges, and the most requests open at once in each bin."""
        edges = self.edges(bins)
        # ends first: where a place is taken the moment it is free, one request is open and not two
        times = np.concatenate([self.end_s, self.meant_s])
        change = np.concatenate([-np.ones(self.end_s.size), np.ones(self.meant_s.size)])
        order = np.argsort(times, kind="stable")
        times, level = times[order], np.cumsum(change[order])
        first, last = np.searchsorted(times, edges[:-1], "left"), np.searchsorted(times, edges[1:], "left") - 1
        before = np.concatenate([[0.0], level])[first]
        peaks = [level[a : b + 1].max() if b >= a else 0.0 for a, b in zip(first, last, strict=True)]
        return edges[:-1], np.maximum(before, np.array(peaks))

    def edges(self, bins: int) -> Floats:
        low, high = float(self.meant_s.min()), float(self.end_s.max())
        return np.linspace(low, max(high, low + 1e-6), bins + 1)


def arrivals(result: Result) -> RequestTimeline | None:
    meant: list[float] = []
    end: list[float] = []
    lag: list[float] = []
    failed: list[tuple[float, str]] = []
    cancelled: list[float] = []
    starts: list[float] = []
    for run in result.runs:
        usable = [one for one in run.records if max(abs(one.intended_ns), abs(one.end_ns)) < LONGEST_S * 1e9]
        if not usable:
            continue
        offset = max(end) * 1.01 if end else 0.0
        starts.append(offset)
        for record in usable:
            at, over = offset + record.intended_ns / 1e9, offset + record.end_ns / 1e9
            meant.append(at)
            end.append(max(at, over))
            lag.append((record.sent_ns - record.intended_ns) / 1e9)
            if record.failure is not None:
                failed.append((over, str(record.failure.kind)))
            elif record.cancelled:
                cancelled.append(over)
    if not meant:
        return None
    columns = (np.array(meant), np.array(end), np.array(lag))
    return RequestTimeline(*columns, tuple(failed), tuple(cancelled), tuple(starts))
