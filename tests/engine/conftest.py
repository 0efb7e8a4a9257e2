"""The tiny real model (260 thousand parameters) on the reference backend: small enough to run thousands of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from forebay.core.clock import ManualClock
from forebay.engine.async_engine import AsyncEngine
from forebay.engine.build import build_engine_core
from forebay.engine.core import EngineCore
from forebay.engine.frontend import TextModel
from forebay.executor.faults import Fault, FaultyExecutor
from forebay.llm import LLM
from forebay.profile import Profile, load_profile
from tests.support.shared import shared_path

SMALL = {"backend.name": "reference", "dtype": "f32", "block_size": 8, "num_blocks": 128, "max_model_len": 256}


def stories_profile(**overrides: object) -> Profile:
    source = str(shared_path("models/stories260K/hf"))
    return load_profile(None, {"source": source, **SMALL, **overrides})


@pytest.fixture(scope="session")
def text_model() -> TextModel:
    return TextModel.load(shared_path("models/stories260K/hf"))


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(profile=stories_profile()) as llm:
        yield llm


@pytest.fixture
def make_core() -> Iterator[Callable[..., EngineCore]]:
    """EngineCore with a manual clock; keyword arguments are profile settings, `fault` goes to the fault seam."""
    cores: list[EngineCore] = []

    def make(fault: Fault | None = None, **overrides: object) -> EngineCore:
        wrap = None if fault is None else lambda executor: FaultyExecutor(executor, fault)
        cores.append(build_engine_core(stories_profile(**overrides), clock=ManualClock(1), wrap_executor=wrap))
        return cores[-1]

    yield make
    for core in cores:
        core.close()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for a module, so that its tests can share an engine process."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def engine(runner: asyncio.Runner) -> Iterator[AsyncEngine]:
    engine = runner.run(AsyncEngine.start(stories_profile()))
    yield engine
    runner.run(engine.close())
