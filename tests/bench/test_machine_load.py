"""Real processes that really use the processor."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from forebay.bench.machine_load import Meter, invalid_reasons, pids_behind, process_tree
from forebay.bench.result import LoadFacts

# uses the processor for as long as it is told, then says so and waits for the end of its input
BUSY = """
import sys, time
end = time.process_time() + float(sys.argv[1])
while time.process_time() < end:
    pass
print("done", flush=True)
sys.stdin.read()
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
USED_S = 0.5


@contextlib.contextmanager
def process(*code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", *code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.communicate()


def wait_for(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == b"done\n"


def test_a_measured_process_and_its_children_are_the_target() -> None:
    with process(PARENT, BUSY, str(USED_S)) as child, Meter(lambda: process_tree(child.pid)) as meter:
        wait_for(child)
        ended = time.monotonic()
    facts = meter.facts()
    assert ended > 0
    assert facts.target_cores is not None
    assert 0.8 * USED_S < facts.target_cores * facts.wall_s < 1.5 * USED_S + 0.2
    assert facts.client_cores * facts.wall_s < 0.2


def test_a_process_that_nobody_measures_is_foreign() -> None:
    with process(BUSY, str(USED_S)) as child, Meter() as meter:
        wait_for(child)
    facts = meter.facts()
    assert facts.target_cores is None
    assert facts.foreign_share > 0.03
    assert any("other processes used" in reason for reason in invalid_reasons([facts], in_process=False))


def work() -> None:
    end = time.process_time() + USED_S
    while time.process_time() < end:
        pass


def test_looking_for_the_processes_is_not_measured() -> None:
    def slowly() -> set[int]:
        work()
        return set()

    with Meter(slowly) as meter:
        pass
    facts = meter.facts()
    assert facts.wall_s < USED_S
    assert facts.client_cores * facts.wall_s < 0.05


def test_own_work_is_the_clients() -> None:
    with Meter() as meter:
        work()
    facts = meter.facts()
    assert 0.8 * USED_S < facts.client_cores * facts.wall_s < 1.2 * USED_S
    assert any("the client itself" in reason for reason in invalid_reasons([facts], in_process=False))
    assert not any("the client itself" in reason for reason in invalid_reasons([facts], in_process=True))


def test_nothing_stands_against_a_quiet_run() -> None:
    quiet = LoadFacts(wall_s=10.0, client_cores=0.1, target_cores=1.9, foreign_share=0.03, steal_share=0.0)
    assert invalid_reasons([quiet, quiet], in_process=False) == []


def test_a_reason_says_in_how_many_runs_and_how_bad() -> None:
    quiet = LoadFacts(wall_s=10.0, client_cores=0.1, target_cores=1.9, foreign_share=0.0, steal_share=0.0)
    loud = LoadFacts(wall_s=10.0, client_cores=0.1, target_cores=1.9, foreign_share=0.25, steal_share=0.0)
    (reason,) = invalid_reasons([quiet, loud, loud], in_process=False)
    assert reason.startswith("other processes used up to 25.0% of this machine in 2 of 3 runs")


def own_addresses() -> list[str]:
    """IPv4 addresses of this machine."""
    found = (address for some in psutil.net_if_addrs().values() for address in some)
    return [address.address for address in found if address.family is socket.AF_INET]


def test_who_listens_is_found_on_this_machine_only() -> None:
    code = "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        behind = pids_behind(f"http://127.0.0.1:{port}/v1")
        assert behind is not None
        assert behind() == {child.pid}
        for host in ("localhost", "127.1", *own_addresses()):
            elsewhere = pids_behind(f"http://{host}:{port}")
            assert elsewhere is not None, host
            assert elsewhere() == {child.pid}
        child.communicate(b"\n")
    assert behind() == set()
    assert pids_behind(f"http://127.0.0.1:{port}") is None
    assert pids_behind("http://192.0.2.1:8000") is None
