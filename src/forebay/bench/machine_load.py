"""Who used this machine's processors while something was measured: the client, the measured processes, others."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psutil

from forebay.bench.result import LoadFacts

MAX_CLIENT_CORES = 0.10
MAX_FOREIGN_SHARE = 0.03


class Meter:
    """Measures between entering and leaving `with`. target_pids: the measured processes, asked for at both ends; None
    if they are elsewhere, or are this process (then what it uses is `client_cores`). Looking for them takes tens of
    milliseconds, and lies outside what is measured."""

    def __init__(self, target_pids: Callable[[], Iterable[int]] | None = None) -> None:
        self._target_pids = target_pids

    def __enter__(self) -> Self:
        self._targets_before = _used_by(self._pids())
        self._began = _Snapshot()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._ended = _Snapshot()
        self._targets_after = _used_by(self._pids())

    def facts(self) -> LoadFacts:
        """After the block."""
        began, ended = self._began, self._ended
        wall_s = max(ended.at_s - began.at_s, 1e-9)
        own = ended.own_s - began.own_s
        target = sum(used - self._targets_before.get(pid, 0.0) for pid, used in self._targets_after.items())
        total = max(ended.total_s - began.total_s, 1e-9)
        foreign = max(0.0, ended.processes_s - began.processes_s - own - target)
        return LoadFacts(
            wall_s=wall_s,
            client_cores=own / wall_s,
            target_cores=None if self._target_pids is None else target / wall_s,
            foreign_share=foreign / total,
            steal_share=(ended.steal_s - began.steal_s) / total,
        )

    def _pids(self) -> set[int]:
        return set() if self._target_pids is None else set(self._target_pids()) - {os.getpid()}


class _Snapshot:
    """Processor seconds used so far. processes_s: by all processes. Interrupts are left out: nobody's, and our own
    traffic makes most of them."""

    def __init__(self) -> None:
        self.at_s = time.monotonic()
        times = psutil.cpu_times()
        self.steal_s = getattr(times, "steal", 0.0)
        self.processes_s = times.user + times.system + getattr(times, "nice", 0.0)
        # guest time stands in user already
        self.total_s = sum(getattr(times, name) for name in times._fields if not name.startswith("guest"))
        own = os.times()
        self.own_s = own.user + own.system


def _used_by(pids: set[int]) -> dict[int, float]:
    return {pid: used for pid in pids if (used := _used(pid)) is not None}


def _used(pid: int) -> float | None:
    """Processor seconds of a process; None once it is gone or if it may not be read."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


def invalid_reasons(loads: Sequence[LoadFacts], *, in_process: bool) -> list[str]:
    """Why figures taken under these loads, one a run, should not be believed; empty if nothing stands against them.

    in_process: client and engine share a process, so that its use of the processor says nothing.
    """
    own = [] if in_process else [load.client_cores for load in loads]
    checks = (
        (
            own,
            MAX_CLIENT_CORES,
            "the client itself used {} of a core",
            "it may have measured itself: use fewer streams",
        ),
        (
            [load.foreign_share for load in loads],
            MAX_FOREIGN_SHARE,
            "other processes used {} of this machine",
            "stop them",
        ),
        (
            [load.steal_share for load in loads],
            MAX_FOREIGN_SHARE,
            "the hypervisor took {} of the processor",
            "try later",
        ),
    )
    return [
        _reason(values, limit, what, remedy) for values, limit, what, remedy in checks if max(values, default=0) > limit
    ]


def _reason(values: Sequence[float], limit: float, what: str, remedy: str) -> str:
    over = sum(value > limit for value in values)
    most = what.format(f"{'' if over == 1 else 'up to '}{max(values):.1%}")
    where = "" if len(values) == 1 else f" in {over} of {len(values)} runs"
    return f"{most}{where} (limit {limit:.0%}); {remedy} and measure again"


def pids_behind(url: str) -> Callable[[], set[int]] | None:
    """A function that gives the processes which serve a URL of this machine: who listens there and its descendants.
    None for another machine, or where it cannot be told who listens."""
    parts = urlsplit(url)
    if parts.hostname is None or not _is_here(parts.hostname):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not _listeners(port):
        return None
    return lambda: {pid for root in _listeners(port) for pid in process_tree(root)}


def _is_here(host: str) -> bool:
    """Whether a name or address leads to this machine."""
    try:
        found = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    own = {address.address.partition("%")[0] for some in psutil.net_if_addrs().values() for address in some}
    return any(address in own or _is_loopback(ipaddress.ip_address(address)) for address in found)


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_loopback or address.is_unspecified


def _listeners(port: int) -> set[int]:
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:  # not allowed here
        return set()
    listening = (c for c in connections if c.status == psutil.CONN_LISTEN and c.laddr.port == port)
    return {c.pid for c in listening if c.pid is not None}


def process_tree(pid: int) -> set[int]:
    """A process and its descendants; empty once it is gone."""
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.Error:
        return set()
