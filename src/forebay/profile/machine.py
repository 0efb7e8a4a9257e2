"""Facts about this machine that decide settings, read with the standard library only."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
# the flags our kernels may use, in the order doctor shows them
ISA_FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
             "amx_tile", "amx_int8", "asimd", "asimddp", "i8mm", "sve")  # fmt: skip


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """cores: processors this process may use (affinity and cgroup quota). physical_cores: how many cores they are on.
    memory_bytes, available_bytes: in all and free to take now, both within the cgroup's limit.
    isa_flags: those of ISA_FLAGS that the processor has."""

    os: str
    arch: str
    cpu: str
    cores: int
    physical_cores: int
    memory_bytes: int
    available_bytes: int
    isa_flags: tuple[str, ...]
    python: str

    def described(self) -> dict[str, str]:
        """Facts in words, for `doctor`."""
        return {
            "os": self.os,
            "processor": f"{self.cpu} ({self.arch})",
            "cores": f"{self.cores} usable, on {self.physical_cores} physical",
            "memory": f"{self.memory_bytes / GIB:.1f} GiB, {self.available_bytes / GIB:.1f} GiB available",
            "isa flags": " ".join(self.isa_flags) or "none that a kernel uses",
            "python": self.python,
        }


def read_machine(root: Path = Path("/")) -> MachineFacts:
    """Read the facts. `root` holds proc/ and sys/ (Linux); where they are missing, portable calls answer."""
    cpuinfo = _cpuinfo(root)
    total, available = _memory(root)
    cpus = _usable_cpus()
    cores = max(1, min(len(cpus), _cgroup_cpus(root)))
    return MachineFacts(
        os=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        cpu=cpuinfo.get("model name") or _sysctl("machdep.cpu.brand_string") or platform.processor() or "unknown",
        cores=cores,
        physical_cores=min(cores, _physical_cores(root, cpus)),
        memory_bytes=total,
        available_bytes=available,
        isa_flags=_isa_flags(cpuinfo),
        python=platform.python_version(),
    )


def _usable_cpus() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _physical_cores(root: Path, cpus: frozenset[int]) -> int:
    """Distinct sets of hyper-thread siblings among `cpus`."""
    topology = root / "sys/devices/system/cpu"
    siblings = {_text(topology / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    return max(1, len(siblings))


def _cgroup_cpus(root: Path) -> int:
    """Whole processors of the cgroup's CPU quota (v2, then v1), rounded up; a huge number without one."""
    words = _text(root / "sys/fs/cgroup/cpu.max").split()
    quota, period = words if len(words) == 2 else ("", "")
    if not quota:
        quota = _text(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _text(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return 2**30
    return max(1, -(-int(quota) // int(period)))


def _memory(root: Path) -> tuple[int, int]:
    """(total, available) bytes."""
    lines = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    kib = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
    total = kib.get("MemTotal", 0) * 1024 or _total_elsewhere()
    # without MemAvailable (not Linux) half of all memory is a guess on the safe side
    available = kib.get("MemAvailable", 0) * 1024 or total // 2
    limit, used = _cgroup_memory(root)
    if 0 < limit < total:
        total, available = limit, min(available, max(0, limit - used))
    return total, available


def _cgroup_memory(root: Path) -> tuple[int, int]:
    """(limit, used) bytes of the cgroup, v2 then v1; limit 0 without one. File cache is not used: it is given back."""
    v2, v1 = root / "sys/fs/cgroup", root / "sys/fs/cgroup/memory"
    limit = _text(v2 / "memory.max") or _text(v1 / "memory.limit_in_bytes")
    used = _text(v2 / "memory.current") or _text(v1 / "memory.usage_in_bytes")
    if not limit.isdigit() or not used.isdigit():
        return 0, 0
    stat = dict(line.split()[:2] for line in (_text(v2 / "memory.stat") or _text(v1 / "memory.stat")).splitlines())
    return int(limit), max(0, int(used) - int(stat.get("inactive_file", 0)))


def _total_elsewhere() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_sysctl("hw.memsize") or 4 * GIB)


def _cpuinfo(root: Path) -> dict[str, str]:
    """Fields of the first processor in proc/cpuinfo."""
    first = _text(root / "proc/cpuinfo").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _isa_flags(cpuinfo: dict[str, str]) -> tuple[str, ...]:
    words = cpuinfo.get("flags") or cpuinfo.get("Features")
    if not words and platform.machine() == "arm64":  # every Apple processor has these two
        words = "asimd asimddp"
    if not words:
        words = (_sysctl("machdep.cpu.features") + " " + _sysctl("machdep.cpu.leaf7_features")).lower()
    have = set(words.split())
    return tuple(flag for flag in ISA_FLAGS if flag in have)


def _sysctl(name: str) -> str:
    """A macOS kernel fact, or "" elsewhere."""
    if platform.system() != "Darwin":
        return ""
    done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
