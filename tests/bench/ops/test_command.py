"""forebay bench ops as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from forebay.bench.result import read_result

QUICK = ("--shape", "small", "--threads", "1", "--rounds", "2", "--seconds", "0.001")


def bench_ops(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay.cli", "bench", "ops", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_a_table_on_stdout_and_a_document_in_the_file(tmp_path: Path) -> None:
    output = tmp_path / "ops.json"
    done = bench_ops(*QUICK, "--op", "linear", "--op", "attention", "-o", str(output))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["op", "what", "step", "kernels"]
    assert [line.split()[0] for line in lines[1:6]] == [*["attention"] * 4, "linear"]  # by op, uncut
    assert "linear     q,o 64x64 q4_1" in done.stdout
    assert "dot_u4" in done.stdout.partition("roofline")[2]
    result = read_result(output)
    assert result.kind == "ops"
    assert result.workload["ops"] == ["linear", "attention"]
    assert result.machine["cores"] >= 1
    assert result.runs[0].load.wall_s > 0
    assert {row["op"] for row in result.rows} == {"linear", "attention", "roofline"}


def test_json_is_the_document_alone() -> None:
    done = bench_ops(*QUICK, "--op", "add", "--backend", "reference", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {row["backend"] for row in document["rows"] if row["op"] == "add"} == {"reference"}


def test_a_wrong_name_is_one_line_with_the_nearest() -> None:
    done = bench_ops("--op", "linaer")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "forebay: op 'linaer' is not known; did you mean linear?\n"
