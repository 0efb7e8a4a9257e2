"""From exec to the first token."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forebay.bench.startup import FIGURES, cached_share, measure_startup, rows_of, start_python
from forebay.errors import BenchError
from forebay.profile import load_profile
from tests.bench.profiles import tiny_profile


def test_the_first_start_is_told_apart() -> None:
    rows = rows_of([dict.fromkeys(FIGURES, value) for value in (9.0, 2.0, 1.0, 4.0)])
    assert len(rows) == len(FIGURES)
    for row in rows:
        assert (row["first"], row["median"], row["range"], row["repeats"]) == (9.0, 2.0, [1.0, 4.0], 3)


def test_a_real_start() -> None:
    runs: list[None] = []
    result = measure_startup(tiny_profile(), repeats=1, on_run=lambda: runs.append(None))
    assert [(row["path"], row["figure"], row["unit"]) for row in result.rows] == list(FIGURES.values())
    assert (len(runs), len(result.runs)) == (2, 1)  # the first one stands in the rows only
    values = result.runs[0].values
    assert set(values) == set(FIGURES)
    parts = [values[f"python_{key}_s"] for key in ("interpreter", "import", "load", "first_token")]
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(values["python_total_s"])
    assert values["server_ready_s"] + values["server_first_token_s"] == pytest.approx(values["server_total_s"])
    assert 20e6 < values["python_peak_rss"] < values["server_peak_rss"] < 2e9
    load = result.runs[0].load
    assert load.target_cores is not None
    assert load.target_cores > 0.1  # what was started is not taken for a stranger
    cached = result.workload["model_cached_share"]
    assert cached is None or 0 <= cached <= 1


def test_the_page_cache_is_asked_without_being_filled(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(os.urandom(1 << 20))
    share = cached_share(file)
    if share is None:
        pytest.skip("this file system does not say what is cached")
    assert share == 1.0
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    left = cached_share(file)
    if left == 1.0:
        pytest.skip("this file system keeps its pages")
    assert left == 0.0
    with file.open("rb") as opened:
        os.pread(opened.fileno(), 1, 1 << 19)
    there = cached_share(file)
    assert there is not None
    assert 0 < there < 1
    assert cached_share(tmp_path) == there == cached_share(file)  # of a folder too, and asking changed nothing


def test_a_model_that_cannot_be_loaded_is_one_clear_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(BenchError, match=r"^the Python API did not start: .*broken.gguf"):
        start_python(load_profile(None, {"source": str(broken)}))
    with pytest.raises(BenchError, match="repeats"):
        measure_startup(tiny_profile(), repeats=0)
