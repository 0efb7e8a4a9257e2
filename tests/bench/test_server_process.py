"""A server of our own: its profile, its pause, its end, and its last words."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest

from forebay.bench.server_process import ServerProcess, as_toml
from forebay.bench.startup import first_answer
from forebay.errors import BenchError
from forebay.observe.recorder import read_record
from forebay.profile import Profile, load_profile
from tests.bench.profiles import tiny_profile


def processor_seconds(process: ServerProcess) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in process.pids()]
    return sum(t.user + t.system for t in times)


def test_it_answers_with_the_profile_it_was_given_and_keeps_a_record(tiny_server: ServerProcess) -> None:
    first_answer(tiny_server.url)
    assert len(tiny_server.pids()) == 2
    assert {tiny_server.pid} < tiny_server.pids()
    assert tiny_server.ready_s > 0.1
    assert tiny_server.peak_rss_bytes() > 50e6
    model = httpx.get(f"{tiny_server.url}/v1/models").json()["data"][0]
    assert model["max_model_len"] == 256
    assert read_record(tiny_server.record).requests[-1].reason == "length"


def test_a_paused_server_uses_no_processor_and_goes_on_where_it_was(tiny_server: ServerProcess) -> None:
    first_answer(tiny_server.url)
    tiny_server.pause()
    try:
        states = {psutil.Process(pid).status() for pid in tiny_server.pids()}
        assert states == {psutil.STATUS_STOPPED}
        before = processor_seconds(tiny_server)
        with pytest.raises(httpx.ReadTimeout):  # it does not even answer, although asked
            httpx.get(f"{tiny_server.url}/health", timeout=0.3)
        assert processor_seconds(tiny_server) == before
    finally:
        tiny_server.resume()
    first_answer(tiny_server.url)
    assert processor_seconds(tiny_server) > before


def test_profiles_survive_the_file(tmp_path: Path) -> None:
    for profile in (
        Profile(),
        tiny_profile(),
        load_profile(None, {"source": 'odd "name"\\ü', "prefix_cache": False, "overcommit": 1.5, "token_budget": 64}),
    ):
        (tmp_path / "p.toml").write_text(as_toml(profile), "utf-8")
        assert load_profile(tmp_path / "p.toml") == profile


def test_one_that_cannot_start_says_why() -> None:
    with pytest.raises(BenchError, match=r"did not start: .*no/such/model"):
        ServerProcess(load_profile(None, {"source": "./no/such/model.gguf"}))
    with pytest.raises(BenchError, match=r"token_budget = 4 is less than scheduler.max_requests"):
        ServerProcess(tiny_profile(token_budget=4))


def test_one_that_is_not_ready_in_time_is_ended() -> None:
    before = set(psutil.Process().children())
    with pytest.raises(BenchError, match="not ready in time"):
        ServerProcess(tiny_profile(), ready_limit_s=0.01)
    assert set(psutil.Process().children()) == before


def test_one_whose_engine_dies_meanwhile_is_a_clear_error() -> None:
    with ServerProcess(tiny_profile()) as process:
        (engine,) = process.pids() - {process.pid}
        why = r"ended with exit code 1 during the measurement(.|\n)*killed by SIGKILL"
        with pytest.raises(BenchError, match=why), process.watched():
            os.kill(engine, signal.SIGKILL)
        with pytest.raises(BenchError, match="exit code 1") as raised, process.watched():
            raise RuntimeError("a connection was lost")
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert process.pids() == set()


def test_one_that_lives_is_not_to_blame(tiny_server: ServerProcess) -> None:
    with pytest.raises(RuntimeError, match="our own"), tiny_server.watched():
        raise RuntimeError("our own fault")


def test_stopping_ends_all_of_it_even_when_paused(tmp_path: Path) -> None:
    process = ServerProcess(tiny_profile(), folder=tmp_path)
    pids = process.pids()
    process.pause()
    began = time.monotonic()
    process.stop()
    assert time.monotonic() - began < 5
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert "draining" in process.log.read_text()  # it was asked, not killed
    process.stop()
