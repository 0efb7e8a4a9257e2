"""The measured limits: sane numbers, and a read kernel that reads every byte and none beyond."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from forebay.bench.ops.roofline import LARGEST_WORKING_SET, SMALLEST_WORKING_SET, Roofline, working_set_step
from forebay.errors import BenchError
from forebay.ops.native import measuring_kernels, read_all, supported_isas

ISAS = supported_isas()
KINDS = ("dot_u8", "dot_u4", "fma_f32")
SECONDS = 0.0005  # so short that some samples are not interrupted even on a busy machine


def best(roofline: Roofline, what: int | str, samples: int = 20) -> float:
    for _ in range(samples):
        roofline.sample(what, SECONDS)
    return roofline.rate(what).best


@pytest.mark.parametrize("isa", ISAS)
def test_rates_are_positive_and_finite(isa: str) -> None:
    roofline = Roofline(isa, 1)
    for what in (*KINDS, 1, 100, SMALLEST_WORKING_SET):
        rate = best(roofline, what, 2)
        assert rate > 1e6
        assert math.isfinite(rate)
        assert roofline.rate(what).median <= rate
    assert {row["kind"] for row in roofline.rows()} == {"read", *KINDS}


@pytest.mark.parametrize("what", ["fma_f32", 2**18])
def test_a_second_thread_does_not_make_it_slower(what: int | str) -> None:
    one, two = Roofline(ISAS[-1], 1), Roofline(ISAS[-1], 2)
    for _ in range(200):  # in turn, so that a busy moment of the machine meets both
        one.sample(what, SECONDS)
        two.sample(what, SECONDS)
    assert two.rate(what).best >= 0.8 * one.rate(what).best


def test_what_fits_a_cache_is_read_at_least_as_fast() -> None:
    roofline = Roofline(ISAS[-1], 1)
    for _ in range(10):
        roofline.sample(2**15, SECONDS)
        roofline.sample(2**27, SECONDS)
    assert roofline.rate(2**15).best >= 0.7 * roofline.rate(2**27).best


def test_better_instructions_have_higher_peaks() -> None:
    if len(ISAS) == 1:
        pytest.skip("this machine has only the generic instruction set")
    generic, vector = Roofline("generic", 1), Roofline(ISAS[-1], 1)
    assert best(vector, "fma_f32") > best(generic, "fma_f32")
    assert best(vector, "dot_u8") > best(generic, "dot_u8")


@pytest.mark.parametrize("isa", ISAS)
def test_a_read_covers_every_byte_once(isa: str) -> None:
    rng = np.random.default_rng(0)
    for size in (*range(300), 4095, 4096, 4097, 100_003):
        data = rng.integers(0, 256, size + 3, np.uint8)[3:]  # on no boundary
        padded = np.concatenate([data, np.zeros(-size % 4, np.uint8)]).view("<u4")
        assert read_all(isa, data) == np.bitwise_xor.reduce(padded, initial=0), size


GUARDED = """
import ctypes, mmap, sys
import numpy as np
from forebay.ops.native import read_all
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
page = mmap.PAGESIZE
pages = np.frombuffer(mmap.mmap(-1, 3 * page), np.uint8)
for guard in (0, 2):
    assert libc.mprotect(pages.ctypes.data + guard * page, page, 0) == 0
middle = pages[page : 2 * page]
for isa in sys.argv[1:]:
    for size in [*range(200), page]:
        assert read_all(isa, middle[page - size :]) == 0
        assert read_all(isa, middle[:size]) == 0
print("unharmed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="guards pages with mprotect")
def test_a_read_stays_within_its_buffer() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED, *ISAS], capture_output=True, text=True, check=False)
    assert done.stdout == "unharmed\n", (done.returncode, done.stderr)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 63, 64, 65, 127, 1000, 12_345])
def test_odd_sizes_are_shared_by_any_number_of_threads(threads: int, size: int) -> None:
    rates = measuring_kernels(ISAS[-1], threads).read(size, 1e-6, 2)
    assert len(rates) == 2
    assert min(rates) > 0


def test_bad_arguments_are_named() -> None:
    with pytest.raises(BenchError, match=r"isa 'mmx' cannot run here; choose from generic"):
        Roofline("mmx", 1)
    kernels = measuring_kernels(ISAS[-1], 1)
    with pytest.raises(ValueError, match="bytes"):
        kernels.read(0, 0.01, 1)
    with pytest.raises(ValueError, match="repeats"):
        kernels.read(64, 0.01, 0)
    for seconds in (0.0, -1.0, math.nan, math.inf, 61.0):
        with pytest.raises(ValueError, match="seconds"):
            kernels.read(64, seconds, 1)
    with pytest.raises(ValueError, match="kind"):
        kernels.peak("fma", 0.01, 1)
    with pytest.raises(ValueError, match="threads"):
        measuring_kernels(ISAS[-1], 0)


def test_bandwidth_is_looked_up_at_a_power_of_two_that_is_no_larger() -> None:
    assert working_set_step(2**20) == working_set_step(2**21 - 1) == 2**20
    assert working_set_step(2**20 - 1) == 2**19
    assert working_set_step(0) == working_set_step(100) == SMALLEST_WORKING_SET
    assert working_set_step(2**40) == LARGEST_WORKING_SET
