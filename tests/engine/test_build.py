"""The composition root: every resolved value keeps the reason of whoever decided it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forebay import LLM
from forebay.engine.build import assemble, build_engine_core
from forebay.ops.protocol import Plan, StepBatch, StepOutputs
from forebay.profile import ResolvedProfile, load_profile
from tests.engine.conftest import stories_profile
from tests.engine.test_core import add, run
from tests.support.shared import shared_path


def stories(**settings: object) -> ResolvedProfile:
    return assemble(load_profile(None, {"source": str(shared_path("models/stories260K/hf")), **settings})).resolved


@pytest.mark.parametrize(
    ("settings", "name", "says"),
    [
        ({"backend.name": "native"}, "backend.threads", "this process may use"),
        ({"backend.name": "native", "backend.threads": 1}, "backend.threads", "given by the profile"),
        ({"backend.name": "native"}, "backend.isa", "the best of"),
        ({"backend.name": "native", "backend.isa": "generic"}, "backend.isa", "given by the profile"),
        ({"backend.name": "reference", "backend.threads": 7}, "backend.threads", "runs on one thread"),
        ({}, "model.weights", "as in the file: f32; auto never changes a model's answers"),
        ({"weights": "stored"}, "model.weights", "as in the file: f32"),
        ({"weights": "int8"}, "model.weights", "matrices f32 to q8_0"),
        ({"weights": "int8"}, "model.weights", "5 matrices f32 as stored (172 columns are not a multiple of 32)"),
        ({"weights": "f32"}, "model.weights", "matrices f32 as stored"),
    ],
)
def test_reasons(settings: dict[str, object], name: str, says: str) -> None:
    assert says in stories(**settings).reasons[name]


def test_the_answer_class_and_the_digest_hold_what_is_really_used() -> None:
    given = {weights: stories(weights=weights) for weights in ("auto", "stored", "f32", "int8", "int4", "bf16")}
    classes = {weights: profile.answer_class for weights, profile in given.items()}
    assert "/weights-f32/" in classes["auto"]
    assert classes["auto"] == classes["stored"] == classes["f32"]  # nothing is converted: caches may be shared
    assert "/weights-q8_0:forebay-1+f32/" in classes["int8"]
    assert "/weights-q4_1:forebay-1+f32+q8_0:forebay-1/" in classes["int4"]
    assert "/weights-bf16:forebay-1/" in classes["bf16"]
    digests = {weights: profile.digest for weights, profile in given.items()}
    assert digests["auto"] == digests["stored"]
    assert len(set(digests.values())) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")
def test_the_file_is_out_of_memory_once_it_is_packed(smollm2_path: Path) -> None:
    with LLM(smollm2_path, **{"model.max_model_len": 64}):
        resident, mapped, found = 0, False, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if "-" in line.split(" ", 1)[0]:
                mapped = line.endswith(smollm2_path.name)
                found |= mapped
            elif mapped and line.startswith("Rss:"):
                resident += int(line.split()[1]) * 1024
        assert found
        assert resident < smollm2_path.stat().st_size // 4


class Counted:
    """A plan that counts its rows."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.rows = 0

    def run(self, batch: StepBatch) -> StepOutputs:
        self.rows += len(batch.token)
        return self._plan.run(batch)

    def close(self) -> None:
        self._plan.close()


def test_what_wraps_the_plan_runs_every_step() -> None:
    made: list[Counted] = []

    def wrap(plan: Plan) -> Plan:
        made.append(Counted(plan))
        return made[-1]  # type: ignore[return-value]  # an engine only runs and closes it

    core = build_engine_core(stories_profile(), wrap_plan=wrap)
    core.add(add("a", [1, 403, 407], max_tokens=4))
    run(core)
    core.close()
    assert made[0].rows == 3 + 4 - 1  # the last token is never computed
