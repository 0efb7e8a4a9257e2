"""Random arrivals, chunks, drafts, forks, aborts, errors, preemptions: every promise of scheduler and cache holds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.scheduler.drive import Drive, Setup
from tests.scheduler.toy_model import VOCAB

SETUPS = st.builds(
    Setup,
    windows=st.sampled_from([(None,), (3,), (None, 5), (1, None), (2, 9)]),
    block_size=st.sampled_from([1, 2, 4]),
    num_blocks=st.integers(4, 16),
    prefix_cache=st.booleans(),
    overcommit=st.sampled_from([1.0, 1.5]),
    token_budget=st.integers(1, 24),
    chunk_size=st.sampled_from([None, 1, 3, 8]),
    max_requests=st.integers(1, 6),
    max_waiting=st.integers(2, 12),
    batching=st.sampled_from(["continuous", "continuous", "continuous", "static"]),
    priorities=st.booleans(),
    full_budget_decodes=st.sampled_from([None, None, 1, 2]),
)
BASES = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [1, 2, 3, 4, 9, 9, 9, 9, 9, 9], [5] * 16]


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(setup=SETUPS, seed=st.integers(0, 2**16))
    def start(self, setup: Setup, seed: int) -> None:
        self.drive = Drive(setup, Random(seed))

    @rule(
        base=st.sampled_from(BASES),
        cut=st.integers(1, 16),
        tail=st.lists(st.integers(1, VOCAB - 1), max_size=5),
        n=st.sampled_from([1, 1, 2, 3]),
        max_tokens=st.integers(0, 12),
        priority=st.integers(0, 2),
        namespace=st.sampled_from(["", "", "tenant"]),
    )
    def add(
        self, base: list[int], cut: int, tail: list[int], n: int, max_tokens: int, priority: int, namespace: str
    ) -> None:
        self.drive.add(base[:cut] + tail, n, max_tokens, priority, namespace)

    @rule(steps=st.integers(1, 4), draft=st.booleans())
    def step(self, steps: int, draft: bool) -> None:
        for _ in range(steps):
            if draft:
                self.drive.draft()
            self.drive.step()

    @rule()
    def abort(self) -> None:
        self.drive.abort()

    @rule(fault=st.booleans())
    def disturbed_step(self, fault: bool) -> None:
        self.drive.step(abort_in_flight=not fault, fault=fault)

    @rule()
    def interrupted_step(self) -> None:
        self.drive.interrupted_step()

    @rule()
    def reset_prefix_cache(self) -> None:
        self.drive.reset()

    def teardown(self) -> None:
        if hasattr(self, "drive"):
            self.drive.run_until_idle()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)

LONG_RUNS = {
    "kept": Setup(priorities=False),
    "overcommitted": Setup(overcommit=1.5, windows=(None, 6), num_blocks=10),
    "no prefix cache": Setup(overcommit=1.5, prefix_cache=False, windows=(7, None), block_size=2, num_blocks=20),
    "windows only": Setup(windows=(3, 9), block_size=2, num_blocks=20, chunk_size=5, token_budget=7),
    "static": Setup(batching="static", chunk_size=4),
}


@pytest.mark.parametrize("name", LONG_RUNS)
def test_a_long_run_keeps_every_promise(name: str) -> None:
    """Hundreds of arrivals per setup; what the run must have met is asserted, so that it cannot pass by being empty."""
    rng = Random(name)
    drive = Drive(LONG_RUNS[name], rng)
    for _ in range(500):
        base = rng.choice(BASES)[: rng.randint(1, 16)]
        drive.add(
            base + [rng.randrange(1, VOCAB) for _ in range(rng.randrange(5))],
            rng.choice([1, 1, 1, 3]),
            rng.randint(0, 12),
            rng.randrange(3),
            rng.choice(["", "tenant"]),
        )
        for _ in range(rng.randrange(8)):
            if rng.random() < 0.5:
                drive.draft()
            drive.step(abort_in_flight=rng.random() < 0.02, fault=rng.random() < 0.01)
        if rng.random() < 0.03:
            drive.abort()
        if rng.random() < 0.01:
            drive.reset()
        if rng.random() < 0.01:
            drive.interrupted_step()
    drive.run_until_idle()
    setup, seen = LONG_RUNS[name], drive.seen
    assert seen["finished"] > 150
    assert min(seen[what] for what in ("drafts accepted", "hidden", "rewound", "error", "abort admitted", "kv")) > 0
    assert (seen["batch"] > 0) == (setup.batching == "static")
    assert (seen["budget"] > 0) == (setup.batching == "continuous")
    assert (seen["preempted"] > 0) == (seen["resumed"] > 0) == (setup.overcommit > 1.0)
    assert (seen["forked"] > 0) == (setup.batching == "continuous") == (seen["sibling"] > 0)
    assert (seen["cached tokens"] > 0) == setup.prefix_cache
    assert (seen["let go"] > 0) == any(setup.windows)
    assert seen["nothing written"] > 0
