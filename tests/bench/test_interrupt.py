"""SIGTERM ends a measurement as Ctrl-C does: nothing that it started stays behind, and what is done is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from forebay.bench.interrupt import deferred, ended_by_sigterm
from forebay.bench.result import read_result
from tests.support.server_process import eventually
from tests.support.shared import shared_path

SWEEP = ("--concurrency", "1,2", "-n", "200", "--output-tokens", "100", "--backend", "reference")


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN], ids=["foreground", "background"])
def sweep(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sweep that would go on for long; shells start background processes with SIGINT ignored."""
    model = str(shared_path("models/stories260K/hf"))
    command = [sys.executable, "-m", "forebay.cli", "bench", "sweep", model, *SWEEP, "-o", str(tmp_path / "s.json")]
    before = signal.signal(signal.SIGINT, request.param)
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    yield process
    process.kill()
    process.communicate()


def is_server(process: psutil.Process) -> bool:
    try:
        return "serve" in process.cmdline()
    except psutil.Error:  # it has ended meanwhile
        return False


@pytest.mark.parametrize("under_load", [False, True], ids=["while it starts", "under load"])
def test_its_server_ends_with_it(sweep: subprocess.Popen[bytes], under_load: bool, tmp_path: Path) -> None:
    found: list[psutil.Process] = []

    def there() -> bool:
        client = psutil.Process(sweep.pid)
        found[:] = [child for child in client.children(recursive=True) if is_server(child)]
        asked = [c for c in client.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
        return bool(found) and (bool(asked) or not under_load)

    assert eventually(there, within_s=60)
    sweep.send_signal(signal.SIGTERM)
    _, errors = sweep.communicate(timeout=30)
    assert not any(process.is_running() for process in found)
    assert sweep.returncode == 0, errors.decode()
    assert read_result(tmp_path / "s.json").invalid_reasons == ["interrupted after 0 of 2 points"]


def test_while_a_child_is_made_an_interrupt_waits() -> None:
    with deferred() as raise_interrupt:
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        raise_interrupt()


def test_afterwards_sigterm_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_sigterm(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
