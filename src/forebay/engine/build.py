"""The composition root: the only file that names concrete classes of every layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forebay.core.clock import Clock, MonotonicClock
from forebay.core.kv_spec import KVSpec
from forebay.core.messages import EngineInfo
from forebay.engine.core import EngineCore
from forebay.executor.base import Executor
from forebay.executor.inline import InlineExecutor
from forebay.kvcache import BlockManager
from forebay.models.decoder import Decoder
from forebay.models.decoder_spec import DecoderSpec
from forebay.models.decoder_weights import DecoderWeights
from forebay.models.families.registry import load_decoder
from forebay.observe.events import EventLog
from forebay.ops.protocol import KERNEL_CONTRACT_VERSION, Backend, Plan, PlanLimits
from forebay.ops.registry import available_backends, create_backend
from forebay.profile import ModelFacts, Profile, ResolvedProfile, read_machine, reported, resolve
from forebay.runner.model_runner import ModelRunner
from forebay.scheduler import Scheduler, SchedulerConfig
from forebay.structured.grammar import GrammarBackend
from forebay.structured.guide import GuideMaker
from forebay.structured.registry import create_grammar_backend
from forebay.tokenizer import load_tokenizer
from forebay.weights.checkpoint import Checkpoint, open_checkpoint
from forebay.weights.conversion import Conversion
from forebay.weights.mapped import drop_pages
from forebay.weights.sources import resolve_source


@dataclass(frozen=True, slots=True)
class Assembly:
    """A model on disk, described and resolved, before anything is packed or allocated."""

    checkpoint: Checkpoint
    spec: DecoderSpec
    weights: DecoderWeights
    kv: KVSpec
    backend: Backend
    resolved: ResolvedProfile


def assemble(profile: Profile) -> Assembly:
    """Fetch the model and decide every setting. Raises SetupError subclasses."""
    checkpoint = open_checkpoint(resolve_source(profile.model.source))
    spec, stored = load_decoder(checkpoint)
    conversion = Conversion(profile.model.weights)
    weights = stored.converted(conversion)
    kv = spec.kv_spec(profile.kv.block_size, profile.kv.dtype)
    resolved = resolve(
        profile, read_machine(), _model_facts(checkpoint, spec, weights, kv, conversion.reason()),
        kernel_contract=KERNEL_CONTRACT_VERSION, backends=available_backends(),
    )  # fmt: skip
    backend = create_backend(resolved.backend.name, isa=resolved.backend.isa, threads=resolved.backend.threads)
    for name, (value, reason) in backend.choices().items():
        if value != getattr(resolved.backend, name):  # else it did as it was told, and that reason stands
            resolved = reported(resolved, f"backend.{name}", value, reason)
    return Assembly(checkpoint, spec, weights, kv, backend, resolved)


def build_engine_core(
    profile: Profile,
    *,
    clock: Clock | None = None,
    wrap_executor: Callable[[Executor], Executor] | None = None,
    wrap_plan: Callable[[Plan], Plan] | None = None,
    wait_for_grammars: bool = False,
) -> EngineCore:
    """Fetch, load and assemble everything a profile names.

    wrap_executor: the fault seam; what it returns runs the steps in place of the executor it is given.
    wrap_plan: the same for the compiled forward pass, so that its time can be told from the rest of a step.
    wait_for_grammars: compile them when a request is added, not beside the loop.
    Raises SetupError subclasses.
    """
    parts = assemble(profile)
    clock = clock or MonotonicClock()
    plan = _plan(parts)
    plan = wrap_plan(plan) if wrap_plan else plan
    executor: Executor = InlineExecutor(ModelRunner(plan, parts.kv, parts.spec.vocab_size))
    resolved, events = parts.resolved, EventLog()
    blocks = BlockManager(
        parts.kv,
        resolved.kv.num_blocks,
        prefix_cache=resolved.kv.prefix_cache,
        overcommit=resolved.scheduler.overcommit,
        chunk_size=resolved.scheduler.chunk_size,
    )
    return EngineCore(
        scheduler=Scheduler(_scheduler_config(resolved), blocks, clock, resolved.digest, events),
        blocks=blocks,
        executor=wrap_executor(executor) if wrap_executor else executor,
        clock=clock,
        events=events,
        info=_engine_info(parts, profile.model.source),
        guides=GuideMaker(partial(_grammar_backend, profile, parts.spec.vocab_size), wait=wait_for_grammars),
    )


def _grammar_backend(profile: Profile, vocab_size: int) -> GrammarBackend:
    checkpoint = open_checkpoint(resolve_source(profile.model.source))
    try:
        return create_grammar_backend(load_tokenizer(checkpoint), vocab_size)
    finally:
        checkpoint.close()


def _model_facts(
    checkpoint: Checkpoint, spec: DecoderSpec, weights: DecoderWeights, kv: KVSpec, weights_reason: str
) -> ModelFacts:
    return ModelFacts(
        digest=checkpoint.digest,
        weight_format=weights.format_name(),
        kv_bytes_per_token=kv.bytes_per_block() // kv.block_size,
        max_position=spec.max_position,
        weight_bytes=weights.num_bytes(),
        extendable=any(layer.rope.kind == "dynamic" for layer in spec.layers),
        weights_reason=weights_reason,
    )


def _plan(parts: Assembly) -> Plan:
    resolved = parts.resolved
    limits = PlanLimits(
        max_tokens=resolved.scheduler.token_budget,
        max_requests=resolved.scheduler.max_requests,
        max_logit_rows=resolved.scheduler.token_budget,  # a request with drafts samples a row for each
        max_model_len=resolved.model.max_model_len,
        num_blocks=resolved.kv.num_blocks,
    )
    decoder = Decoder(parts.spec, parts.weights, resolved.model.max_model_len)
    plan = parts.backend.compile(decoder, parts.kv, limits)
    for name in parts.checkpoint.tensor_names():
        drop_pages(parts.checkpoint.tensor(name).data)  # packed by now; what is still read comes back by itself
    return plan


def _scheduler_config(resolved: ResolvedProfile) -> SchedulerConfig:
    settings = resolved.scheduler
    return SchedulerConfig(
        token_budget=settings.token_budget,
        chunk_size=settings.chunk_size,
        full_budget_decodes=settings.full_budget_decodes,
        max_requests=settings.max_requests,
        max_waiting=settings.max_waiting,
        batching=settings.batching,
    )


def _engine_info(parts: Assembly, source: str) -> EngineInfo:
    resolved = parts.resolved
    return EngineInfo(
        model_name=served_name(source),
        max_model_len=resolved.model.max_model_len,
        num_blocks=resolved.kv.num_blocks,
        block_size=resolved.kv.block_size,
        vocab_size=parts.spec.vocab_size,
        hidden_size=parts.spec.hidden_size,
        profile_digest=resolved.digest,
        answer_class=resolved.answer_class,
        default_max_tokens=resolved.scheduler.default_max_tokens,
        max_requests=resolved.scheduler.max_requests,
        max_waiting=resolved.scheduler.max_waiting,
        resolved=resolved.explained(),
    )


def served_name(source: str) -> str:
    """The name clients ask for: a known name as it is, a path's last part without ".gguf", a repository or package
    without its version."""
    scheme, _, rest = source.rpartition(":")
    name = rest.partition("@")[0].partition("==")[0] if scheme in ("hf", "pypi") else Path(rest).name
    return name.removesuffix(".gguf") or source
