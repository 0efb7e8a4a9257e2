"""Machine facts, read from made-up proc and sys trees."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forebay.profile import read_machine

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads proc and sys, which only Linux has")

MEMINFO = "MemTotal:  8388608 kB\nMemFree:  1048576 kB\nMemAvailable:  4194304 kB\nHugePages_Total:  0\n"
CPUINFO = """\
processor\t: 0
model name\t: Some CPU @ 3.0GHz
flags\t\t: fpu avx2 fma f16c

processor\t: 1
flags\t\t: avx512f
"""


def tree(root: Path, **files: str) -> Path:
    """A root folder with the given files; `__` in a name is `/`."""
    for name, text in {"proc__meminfo": MEMINFO, "proc__cpuinfo": CPUINFO, **files}.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@linux_only
def test_proc_is_read(tmp_path: Path) -> None:
    facts = read_machine(tree(tmp_path))
    assert facts.cpu == "Some CPU @ 3.0GHz"
    assert facts.isa_flags == ("avx2", "fma", "f16c")
    assert (facts.memory_bytes, facts.available_bytes) == (8 * 2**30, 4 * 2**30)
    assert facts.cores == len(os.sched_getaffinity(0))


@linux_only
def test_cgroup_v2_limits_count(tmp_path: Path) -> None:
    files = {
        "sys__fs__cgroup__cpu.max": "100000 100000\n",
        "sys__fs__cgroup__memory.max": str(2 * 2**30),
        "sys__fs__cgroup__memory.current": str(2**30),
        "sys__fs__cgroup__memory.stat": f"anon 5\ninactive_file {2**29}\n",
    }
    facts = read_machine(tree(tmp_path, **files))
    assert facts.cores == 1
    assert facts.memory_bytes == 2 * 2**30
    assert facts.available_bytes == 2**30 + 2**29  # file cache is given back under pressure


@linux_only
def test_cgroup_v1_limits_count(tmp_path: Path) -> None:
    files = {
        "sys__fs__cgroup__cpu__cpu.cfs_quota_us": "50000",
        "sys__fs__cgroup__cpu__cpu.cfs_period_us": "100000",
        "sys__fs__cgroup__memory__memory.limit_in_bytes": str(2**30),
        "sys__fs__cgroup__memory__memory.usage_in_bytes": "0",
    }
    facts = read_machine(tree(tmp_path, **files))
    assert facts.cores == 1
    assert facts.memory_bytes == facts.available_bytes == 2**30


@linux_only
@pytest.mark.parametrize("quota", ["max 100000", "", "nonsense"])
def test_no_quota_is_no_limit(tmp_path: Path, quota: str) -> None:
    files = {"sys__fs__cgroup__cpu.max": quota, "sys__fs__cgroup__memory.max": "max"}
    facts = read_machine(tree(tmp_path, **files))
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.memory_bytes == 8 * 2**30


@linux_only
def test_hyper_threads_share_a_core(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    files = {f"sys__devices__system__cpu__cpu{cpu}__topology__thread_siblings_list": "0-1023" for cpu in cpus}
    facts = read_machine(tree(tmp_path, **files))
    assert (facts.cores, facts.physical_cores) == (len(cpus), 1)


def test_this_machine_has_plausible_facts() -> None:
    facts = read_machine()
    assert 1 <= facts.physical_cores <= facts.cores
    assert 2**28 < facts.available_bytes <= facts.memory_bytes
    assert all(facts.described().values())


def test_an_empty_root_is_answered_by_portable_calls(tmp_path: Path) -> None:
    facts = read_machine(tmp_path)
    assert facts.memory_bytes > 2**28
    assert facts.cores >= 1
