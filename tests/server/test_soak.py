"""64 streams at once for a while, a third of them hanging up half way: right answers, no block lost, no memory lost.

FOREBAY_TEST_SOAK_SECONDS sets for how long (default 20). The long run, with the default model, is benchmarks/soak.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forebay.ops.registry import available_backends
from tests.support.server_process import running_server
from tests.support.soak import LIMIT_MB_PER_MINUTE, Report, server_flags, soak

SECONDS = float(os.environ.get("FOREBAY_TEST_SOAK_SECONDS", "20"))
NUM_STREAMS = 64
NUM_QUESTIONS = 24
NUM_BLOCKS = 512
# A short run cannot resolve 1 MB a minute: heaps grow in steps of up to 1 MB, and settle only after some ten thousand
# streams. Ten seconds end about a thousand streams, so that this still finds a leak of a few kB per stream.
SETTLING_MB = 3.0

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory from /proc")


@pytest.fixture(scope="module")
def report(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    flags = [*server_flags(str(tiny_model), NUM_STREAMS, NUM_BLOCKS), "--backend", available_backends()[0]]
    with running_server(flags, tmp_path_factory.mktemp("soak") / "log") as server:
        return soak(
            server,
            tiny_model.name,
            seconds=SECONDS,
            streams=NUM_STREAMS,
            num_questions=NUM_QUESTIONS,
            num_blocks=NUM_BLOCKS,
        )


def test_every_stream_gives_its_solo_answer(report: Report) -> None:
    assert report.tally.problems == []
    assert report.streams_hold, report.finished


def test_it_was_a_load(report: Report) -> None:
    """Answers differ from each other, many requests ran at once, and requests were aborted while they ran."""
    assert report.distinct_answers == NUM_QUESTIONS
    assert max(report.running) > NUM_STREAMS / 2
    assert report.tally.completed > report.tally.hung_up > NUM_STREAMS
    assert report.finished["abort"] > NUM_STREAMS / 2


def test_blocks_requests_and_sockets_balance_to_zero(report: Report) -> None:
    assert {name: left for name, left in report.at_rest.items() if left} == {}


def test_memory_does_not_grow(report: Report) -> None:
    """In the second half, when every block of the KV cache has long been written."""
    allowed = LIMIT_MB_PER_MINUTE * SECONDS / 2 / 60 + SETTLING_MB
    grown = {name: kinds["anonymous"].end_mb - kinds["anonymous"].start_mb for name, kinds in report.growth.items()}
    print(f"anonymous memory grew by {grown} MB")
    assert max(grown.values()) < allowed, report.samples
