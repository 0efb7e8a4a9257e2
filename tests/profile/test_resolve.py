"""Resolving: each "auto" once, with its reason; contradictions refused; identity."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from forebay.core.grammar_spec import grammar_version
from forebay.errors import ProfileError
from forebay.profile import (
    AUTO,
    SETTINGS,
    MachineFacts,
    ModelFacts,
    ResolvedProfile,
    diff,
    load_profile,
    reported,
    resolve,
    values,
)

GIB = 2**30
MACHINE = MachineFacts(
    os="Linux 6.1", arch="x86_64", cpu="test", cores=6, physical_cores=3, memory_bytes=16 * GIB,
    available_bytes=12 * GIB, isa_flags=("avx2", "fma", "f16c"), python="3.11.7",
)  # fmt: skip
MODEL = ModelFacts(digest="m" * 64, weight_format="q4_1", kv_bytes_per_token=1024, max_position=2048, weight_bytes=GIB)


def resolved(
    overrides: dict[str, Any] | None = None, machine: MachineFacts = MACHINE, model: ModelFacts = MODEL
) -> ResolvedProfile:
    return resolve(load_profile(None, overrides), machine, model, kernel_contract=1)


def test_every_auto_is_decided_with_a_reason() -> None:
    profile = resolved()
    left = [name for name, value in values(profile).items() if value == AUTO]
    assert left == ["backend.isa"]  # the backend's own choice, reported when it has started
    assert set(profile.reasons) == set(SETTINGS)
    assert all(profile.reasons.values())
    assert values(reported(profile, "backend.isa", "avx2", "best here"))["backend.isa"] == "avx2"


def test_the_defaults_on_a_roomy_machine() -> None:
    profile = resolved()
    assert profile.backend.name == "native"
    assert profile.backend.threads == 6
    assert profile.model.max_model_len == 2048
    assert profile.scheduler.token_budget == profile.scheduler.chunk_size == 512
    assert profile.kv.num_blocks == 64 * 2048 // 16  # capped: all that 64 requests can use
    assert profile.reasons["kv.num_blocks"] == "all that 64 requests of 2048 tokens can use"
    assert profile.kv.memory_gib == pytest.approx(64 * 2048 * 1024 / GIB)


def test_the_cache_takes_a_quarter_of_memory() -> None:
    heavy = dataclasses.replace(MODEL, kv_bytes_per_token=2**20)
    assert resolved(model=heavy).kv.num_blocks == 4 * GIB // (16 * 2**20)
    assert "25 % of 16.0 GiB" in resolved(model=heavy).reasons["kv.num_blocks"]


def test_the_cache_leaves_room_when_memory_is_taken() -> None:
    heavy = dataclasses.replace(MODEL, kv_bytes_per_token=2**20)
    busy = dataclasses.replace(MACHINE, available_bytes=3 * GIB)
    profile = resolved(machine=busy, model=heavy)
    assert profile.kv.num_blocks == 2 * GIB * 80 // 100 // (16 * 2**20)
    assert "80 % of the 2.0 GiB free beside the weights" in profile.reasons["kv.num_blocks"]


def test_a_small_cache_shortens_the_longest_request_and_says_so() -> None:
    profile = resolved({"num_blocks": 10})
    assert profile.model.max_model_len == 160
    assert profile.reasons["model.max_model_len"] == "what 10 blocks hold; the model's own limit: 2048"


def test_memory_gib_decides_the_blocks() -> None:
    profile = resolved({"memory_gib": 0.01})
    assert profile.kv.num_blocks == int(0.01 * GIB) // (16 * 1024)
    assert profile.kv.memory_gib == pytest.approx(0.01, rel=0.01)


def test_token_budget_has_room_for_every_request() -> None:
    assert resolved({"max_requests": 600}).scheduler.token_budget == 600
    assert resolved({"token_budget": 128}).scheduler.chunk_size == 128
    assert resolved({"chunk_size": 16}).scheduler.token_budget == 512


def test_without_the_extension_the_reference_serves() -> None:
    profile = resolve(load_profile(), MACHINE, MODEL, kernel_contract=1, backends=("reference",))
    assert profile.backend.name == "reference"
    assert profile.reasons["backend.name"] == "the native extension is not built here"
    with pytest.raises(ProfileError, match='"native" is not available'):
        resolve(
            load_profile(None, {"backend.name": "native"}), MACHINE, MODEL, kernel_contract=1, backends=("reference",)
        )


@pytest.mark.parametrize(
    ("overrides", "param", "says"),
    [
        ({"max_model_len": 4096}, "model.max_model_len", "more than the 2048 positions"),
        ({"max_model_len": 2048, "num_blocks": 10}, "model.max_model_len", "10 blocks hold 160 tokens"),
        ({"token_budget": 16}, "scheduler.token_budget", "less than scheduler.max_requests = 64"),
        ({"chunk_size": 1024}, "scheduler.chunk_size", "more than scheduler.token_budget = 512"),
        ({"num_blocks": 10, "memory_gib": 1}, "kv.memory_gib", "both given"),
        ({"num_blocks": 2**24}, "kv.num_blocks", "take 256.0 GiB, this machine has 16.0 GiB"),
    ],
)
def test_contradictions_are_refused(overrides: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(ProfileError, match=says) as caught:
        resolved(overrides)
    assert caught.value.param == param


def test_a_cache_without_one_block_is_refused() -> None:
    heavy = dataclasses.replace(MODEL, kv_bytes_per_token=2**20)
    with pytest.raises(ProfileError, match=r"memory_gib = 0\.001 does not hold one block of 16777216 bytes"):
        resolved({"memory_gib": 0.001}, model=heavy)
    full = dataclasses.replace(MACHINE, available_bytes=0)
    with pytest.raises(ProfileError, match=r"80 % of the 0\.0 GiB free beside the weights does not hold one block"):
        resolved(machine=full)


def test_slots_stay_in_32_bits() -> None:
    tiny = dataclasses.replace(MODEL, kv_bytes_per_token=1)
    with pytest.raises(ProfileError, match="slots"):
        resolved({"num_blocks": 2**22, "block_size": 1024}, model=tiny)


def test_a_dynamic_rope_model_may_be_served_longer() -> None:
    longer = dataclasses.replace(MODEL, extendable=True)
    assert resolved({"max_model_len": 4096}, model=longer).model.max_model_len == 4096
    # its rotary frequencies depend on the served length, and so do its answers
    assert resolved({"max_model_len": 4096}, model=longer).answer_class.endswith("/rope-4096")
    assert resolved({"max_model_len": 1024}).answer_class == resolved().answer_class


def test_the_digest_is_of_what_is_served() -> None:
    base = resolved()
    assert len(base.digest) == 64
    assert base.digest == resolved().digest
    assert base.digest == resolved({"model.source": "/elsewhere/the-same.gguf"}).digest
    assert base.digest == resolved({"scheduler.overcommit": 1}).digest  # 1 and 1.0 are one value
    others = [
        resolved({"kv.block_size": 32}),
        resolved({"scheduler.max_waiting": 1}),
        resolved(model=dataclasses.replace(MODEL, digest="n" * 64)),
        resolve(load_profile(), MACHINE, MODEL, kernel_contract=2),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 5


def test_the_answer_class_names_what_changes_bits() -> None:
    base = resolved()
    assert base.answer_class == f"native/kernels-1/weights-q4_1/kv-f16/tp-1/grammar-{grammar_version()}"
    same = resolved({"threads": 1, "isa": "generic", "block_size": 4, "num_blocks": 99, "max_model_len": 64})
    assert same.answer_class == base.answer_class
    assert resolved({"kv.dtype": "f32"}).answer_class != base.answer_class
    assert resolved({"backend.name": "reference"}).answer_class != base.answer_class


def test_weights_are_resolved_with_the_reason_of_who_looked_at_them() -> None:
    facts = dataclasses.replace(MODEL, weights_reason="as in the file: q4_1")
    assert resolved(model=facts).explained()["model.weights"] == '"stored" (as in the file: q4_1)'
    made = dataclasses.replace(MODEL, weight_format="q8_0:forebay-1", weights_reason="4 matrices bf16 to q8_0")
    asked = resolved({"weights": "int8"}, model=made)
    assert asked.explained()["model.weights"] == '"int8" (4 matrices bf16 to q8_0)'
    assert asked.answer_class == f"native/kernels-1/weights-q8_0:forebay-1/kv-f16/tp-1/grammar-{grammar_version()}"


def test_weights_made_by_another_method_are_another_profile() -> None:
    first, second = (
        resolved({"weights": "int8"}, model=dataclasses.replace(MODEL, weight_format=f"q8_0:forebay-{method}"))
        for method in (1, 2)
    )
    assert first.digest != second.digest
    assert first.answer_class != second.answer_class


def test_diff_names_the_fields_that_differ() -> None:
    assert diff(load_profile(), load_profile()) == {}
    assert diff(resolved(), resolved({"kv.block_size": 32})) == {
        "kv.block_size": (16, 32),
        "kv.num_blocks": (8192, 4096),
    }


def test_explained_shows_value_and_reason() -> None:
    shown = resolved({"kv.dtype": "f32"}).explained()
    assert shown["kv.dtype"] == '"f32" (given by the profile)'
    assert shown["backend.threads"] == "6 (this process may use 6 processors)"


def test_it_crosses_a_process_boundary() -> None:
    base = resolved()
    assert pickle.loads(pickle.dumps(base)) == base
    profile = load_profile(None, {"threads": 2})
    assert pickle.loads(pickle.dumps(profile)) == profile


@given(
    memory=st.integers(1, 2**40),
    free_share=st.floats(0, 1),
    per_token=st.integers(1, 2**22),
    max_position=st.integers(1, 2**20),
    weight_bytes=st.integers(0, 2**36),
    block_size=st.integers(1, 1024),
    max_requests=st.integers(1, 65536),
)
def test_auto_never_contradicts_itself(
    memory: int, free_share: float, per_token: int, max_position: int, weight_bytes: int, block_size: int,
    max_requests: int,
) -> None:  # fmt: skip
    machine = dataclasses.replace(MACHINE, memory_bytes=memory, available_bytes=int(memory * free_share))
    model = dataclasses.replace(
        MODEL, kv_bytes_per_token=per_token, max_position=max_position, weight_bytes=weight_bytes
    )
    try:
        profile = resolved({"block_size": block_size, "max_requests": max_requests}, machine, model)
    except ProfileError as error:
        event(f"refused for {error.param}")
        return
    kv = profile.kv
    assert kv.num_blocks * block_size >= profile.model.max_model_len
    assert kv.num_blocks * block_size * per_token <= memory
    assert profile.model.max_model_len <= max_position
    assert kv.num_blocks <= max_requests * -(-max_position // block_size)
    assert profile.scheduler.token_budget >= max_requests
