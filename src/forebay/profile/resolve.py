"""Every "auto" decided once, for a machine and a model, each with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Never

from forebay.errors import ProfileError
from forebay.profile.identity import answer_class_of, digest_of
from forebay.profile.machine import GIB, MachineFacts
from forebay.profile.schema import (
    SECTIONS,
    SETTINGS,
    BackendSection,
    KVSection,
    ModelSection,
    Profile,
    SchedulerSection,
    values,
)
from forebay.profile.settings import AUTO, toml_value

STORED = "stored"  # what `auto` of model.weights stands for
DEFAULT_TOKEN_BUDGET = 512
# A share of all memory is the same at each start, so the digest is too; what is free now only bounds it.
KV_PERCENT_OF_MEMORY = 25
KV_PERCENT_OF_FREE = 80
MAX_SLOTS = 2**31 - 1  # slots are int32 in a step


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What resolving must know of a model.

    digest: identity of its content. weight_format: formats of its matrices as they are served, joined ("q4_1+q6_k"),
    with the version of the method for those that are not the file's. weights_reason: how they came to be.
    kv_bytes_per_token: bytes of K and V over all layers in the profile's kv.dtype (KVSpec's bytes / block_size).
    max_position: positions the model was made for; longer requests are refused unless `extendable` (dynamic rope).
    weight_bytes: memory the weights take once loaded.
    """

    digest: str
    weight_format: str
    kv_bytes_per_token: int
    max_position: int
    weight_bytes: int
    extendable: bool = False
    weights_reason: str = "as in the file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedProfile:
    """A Profile without "auto" (only backend.isa stays so until the backend reports its choice: `reported`).

    reasons: dotted name -> why it has its value, for every field.
    """

    model: ModelSection[Never]
    backend: BackendSection[Never]
    kv: KVSection[Never]
    scheduler: SchedulerSection[Never]
    reasons: Mapping[str, str]
    model_facts: ModelFacts
    kernel_contract: int

    @property
    def digest(self) -> str:
        """Identity of this profile: sha256 hex over its values, the model, its formats and the kernel contract."""
        model = self.model_facts
        return digest_of(values(self), model.digest, model.weight_format, self.kernel_contract)

    @property
    def answer_class(self) -> str:
        """Inside one answer class, answers are equal bit for bit."""
        return answer_class_of(
            self.backend.name,
            self.kernel_contract,
            self.model_facts.weight_format,
            self.kv.dtype,
            rope_length=self.model.max_model_len if self.model_facts.extendable else None,
        )

    def explained(self) -> dict[str, str]:
        """Dotted name -> "value (reason)", for `doctor`, logs and EngineInfo."""
        return {name: f"{toml_value(value)} ({self.reasons[name]})" for name, value in values(self).items()}


def resolve(
    profile: Profile,
    machine: MachineFacts,
    model: ModelFacts,
    *,
    kernel_contract: int,
    backends: tuple[str, ...] = ("native", "reference"),
) -> ResolvedProfile:
    """Decide every "auto". backends: those that can be built here, best first.

    Raises ProfileError where explicit values contradict each other, the model or the machine.
    """
    decided = _Decisions(profile)
    asked = decided["model.weights"]
    decided.set("model.weights", STORED if asked == AUTO else asked, model.weights_reason)
    _resolve_backend(decided, machine, backends)
    _resolve_scheduler(decided)
    _resolve_lengths(decided, machine, model)
    return ResolvedProfile(
        **decided.sections(), reasons=decided.reasons, model_facts=model, kernel_contract=kernel_contract
    )


def reported(resolved: ResolvedProfile, name: str, value: Any, reason: str) -> ResolvedProfile:
    """A copy with what a component chose for a field, such as "backend.isa" by the native backend."""
    section, field = name.split(".")
    changed = dataclasses.replace(getattr(resolved, section), **{field: value})
    return dataclasses.replace(resolved, **{section: changed}, reasons={**resolved.reasons, name: reason})


class _Decisions:
    """The values so far and why; turned into sections when all are made."""

    def __init__(self, profile: Profile) -> None:
        self.values = values(profile)
        self.reasons = {
            name: "default" if value == SETTINGS[name].default else "given by the profile"
            for name, value in self.values.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def is_auto(self, name: str) -> bool:
        return bool(self.values[name] == AUTO)

    def set(self, name: str, value: Any, reason: str) -> None:
        self.values[name] = value
        self.reasons[name] = reason

    def sections(self) -> dict[str, Any]:
        return {
            section: cls(**{n.split(".")[1]: v for n, v in self.values.items() if n.startswith(f"{section}.")})
            for section, cls in SECTIONS.items()
        }


def _resolve_backend(decided: _Decisions, machine: MachineFacts, backends: tuple[str, ...]) -> None:
    if decided.is_auto("backend.name"):
        best = backends[0]
        why = "the fastest backend of this install" if best == "native" else "the native extension is not built here"
        decided.set("backend.name", best, why)
    elif decided["backend.name"] not in backends:
        name = decided["backend.name"]
        raise ProfileError(
            f'backend.name = "{name}" is not available in this install, which has {", ".join(backends)}; '
            'reinstall forebay, or set it to "auto"',
            param="backend.name",
        )
    if decided.is_auto("backend.isa"):
        native = decided["backend.name"] == "native"
        decided.set("backend.isa", AUTO, "the backend chooses at start" if native else "numpy chooses")
    if decided.is_auto("backend.threads"):
        decided.set("backend.threads", machine.cores, f"this process may use {machine.cores} processors")


def _resolve_scheduler(decided: _Decisions) -> None:
    requests = decided["scheduler.max_requests"]
    if decided.is_auto("scheduler.token_budget"):
        budget = max(DEFAULT_TOKEN_BUDGET, requests)
        why = "one token for each of max_requests" if requests > DEFAULT_TOKEN_BUDGET else "the default budget"
        decided.set("scheduler.token_budget", budget, why)
    budget = decided["scheduler.token_budget"]
    if budget < requests:
        raise ProfileError(
            f"scheduler.token_budget = {budget} is less than scheduler.max_requests = {requests}, so some running "
            "request could not decode in a step; raise the one or lower the other",
            param="scheduler.token_budget",
        )
    if decided.is_auto("scheduler.chunk_size"):
        decided.set("scheduler.chunk_size", budget, "token_budget: one prompt may fill a step")
    elif decided["scheduler.chunk_size"] > budget:
        raise ProfileError(
            f"scheduler.chunk_size = {decided['scheduler.chunk_size']} is more than scheduler.token_budget = {budget}; "
            "lower it",
            param="scheduler.chunk_size",
        )


def _resolve_lengths(decided: _Decisions, machine: MachineFacts, model: ModelFacts) -> None:
    """max_model_len, num_blocks and memory_gib decide each other: length wanted, blocks held, length that fits."""
    wanted, why = _wanted_length(decided, model)
    block_bytes = model.kv_bytes_per_token * decided["kv.block_size"]
    if decided.is_auto("kv.num_blocks"):
        _resolve_blocks(decided, machine, model, wanted, block_bytes)
    elif not decided.is_auto("kv.memory_gib"):
        raise ProfileError("kv.num_blocks and kv.memory_gib are both given; give one of them", param="kv.memory_gib")
    _check_cache(decided, machine, block_bytes)
    gib = max(0.001, round(decided["kv.num_blocks"] * block_bytes / GIB, 6))
    decided.set("kv.memory_gib", gib, f"{decided['kv.num_blocks']} blocks of {block_bytes} bytes")
    fits = decided["kv.num_blocks"] * decided["kv.block_size"]
    if fits >= wanted:
        decided.set("model.max_model_len", wanted, why)
    elif decided.is_auto("model.max_model_len"):
        decided.set("model.max_model_len", fits, f"what {decided['kv.num_blocks']} blocks hold; {why}: {wanted}")
    else:
        raise ProfileError(
            f"model.max_model_len = {wanted} does not fit the KV cache: {decided['kv.num_blocks']} blocks hold {fits} "
            "tokens; lower it, or raise kv.num_blocks or kv.memory_gib",
            param="model.max_model_len",
        )


def _wanted_length(decided: _Decisions, model: ModelFacts) -> tuple[int, str]:
    if decided.is_auto("model.max_model_len"):
        return model.max_position, "the model's own limit"
    length = int(decided["model.max_model_len"])
    if length > model.max_position and not model.extendable:
        raise ProfileError(
            f"model.max_model_len = {length} is more than the {model.max_position} positions the model was made for; "
            f"set it to {model.max_position} or less",
            param="model.max_model_len",
        )
    return length, "given by the profile"


def _resolve_blocks(
    decided: _Decisions, machine: MachineFacts, model: ModelFacts, length: int, block_bytes: int
) -> None:
    requests = decided["scheduler.max_requests"]
    useful = requests * -(-length // decided["kv.block_size"])
    if decided.is_auto("kv.memory_gib"):
        memory, source = _cache_memory(machine, model)
    else:
        memory, source = int(decided["kv.memory_gib"] * GIB), f"memory_gib = {decided['kv.memory_gib']:g}"
    held = memory // block_bytes
    if held < 1:
        raise ProfileError(
            f"{source} does not hold one block of {block_bytes} bytes; raise kv.memory_gib or free memory",
            param="kv.memory_gib",
        )
    if held <= useful:
        decided.set("kv.num_blocks", held, f"{source} in blocks of {block_bytes} bytes")
    else:
        decided.set("kv.num_blocks", useful, f"all that {requests} requests of {length} tokens can use")


def _check_cache(decided: _Decisions, machine: MachineFacts, block_bytes: int) -> None:
    """Refuse a cache that this machine cannot hold or a slot number cannot count."""
    blocks, size = decided["kv.num_blocks"], decided["kv.block_size"]
    needed = blocks * block_bytes
    if needed > machine.memory_bytes:
        raise ProfileError(
            f"{blocks} blocks of {size} tokens take {needed / GIB:.1f} GiB, this machine has "
            f"{machine.memory_bytes / GIB:.1f} GiB; lower kv.num_blocks or kv.memory_gib",
            param="kv.num_blocks",
        )
    if blocks * size > MAX_SLOTS:
        raise ProfileError(
            f"kv.num_blocks = {blocks} blocks of {size} tokens are more than {MAX_SLOTS} slots; lower it",
            param="kv.num_blocks",
        )


def _cache_memory(machine: MachineFacts, model: ModelFacts) -> tuple[int, str]:
    """Bytes for the cache, and where they come from."""
    share = machine.memory_bytes * KV_PERCENT_OF_MEMORY // 100
    free = max(0, machine.available_bytes - model.weight_bytes)
    bound = free * KV_PERCENT_OF_FREE // 100
    if share <= bound:
        return share, f"{KV_PERCENT_OF_MEMORY} % of {machine.memory_bytes / GIB:.1f} GiB of memory"
    return bound, f"{KV_PERCENT_OF_FREE} % of the {free / GIB:.1f} GiB free beside the weights"
