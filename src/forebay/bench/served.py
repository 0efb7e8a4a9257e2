"""A server to measure: a child of ours with a profile of its own, or one that runs elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forebay.bench.client.load import Endpoint, Observer
from forebay.bench.plan import Workload
from forebay.bench.result import Result
from forebay.bench.serve import Measured, measure, planned, run_once
from forebay.bench.server_process import ServerProcess
from forebay.bench.slo import SLO
from forebay.bench.target import identify, tokenizer_of
from forebay.bench.workload.spec import WorkloadSpec
from forebay.profile import SETTINGS, Profile, values
from forebay.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """url: where it is. model, api_key: as `identify` takes them. tokenizer: where the one that counts prompts is from
    (None: the served model's name)."""

    url: str
    model: str | None = None
    api_key: str | None = None
    tokenizer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that is ready. process: None if it is not ours. facts: what a document says of it."""

    name: str
    endpoint: Endpoint
    tokenizer: Tokenizer
    max_model_len: int | None
    facts: dict[str, Any]
    process: ServerProcess | None = None

    def planned(self, spec: WorkloadSpec, *, runs: int, warmup: int) -> tuple[list[Workload], Workload | None]:
        """As bench.serve.planned, within what this server can take. Raises BenchError."""
        limited = replace(spec, max_model_len=spec.max_model_len or self.max_model_len)
        return planned(limited, self.tokenizer, runs=runs, warmup=warmup)

    def measure(
        self,
        workloads: Sequence[Workload],
        *,
        warmup: Workload | None = None,
        slo: SLO | None = None,
        seed: int = 0,
        observer: Observer | None = None,
    ) -> Result:
        """As bench.serve.measure. Raises BenchError, with the server's last words if it died meanwhile."""
        with self._watched():
            return measure(
                self.endpoint, workloads, warmup=warmup, slo=slo, seed=seed, label=self.name, record=self.record,
                target=self.facts, observer=observer,
            )  # fmt: skip

    def run_once(self, workload: Workload, observer: Observer | None = None) -> Measured:
        """Play one workload. Raises as `measure`."""
        with self._watched():
            return run_once(workload, self.endpoint, observer)

    @property
    def record(self) -> Path | None:
        return None if self.process is None else self.process.record

    def pause(self) -> None:
        """Let it use no processor, if it is ours."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.process.resume()

    def _watched(self) -> Any:
        return nullcontext() if self.process is None else self.process.watched()


@contextmanager
def served(what: Profile | Server, *, name: str = "", timeout_s: float = 600.0) -> Iterator[Served]:
    """The server that runs already, or a new one with the profile, which is stopped at the end. timeout_s: the longest
    a request may take. Raises BenchError, SetupError subclasses."""
    if isinstance(what, Server):
        yield _at(what, name, timeout_s)
        return
    with ServerProcess(what) as process:
        there = _at(Server(url=process.url, tokenizer=what.model.source), name, timeout_s)
        yield replace(there, process=process, facts={**there.facts, "settings": changed_settings(what)})


def changed_settings(profile: Profile) -> dict[str, Any]:
    """Settings that are not at their default, by dotted name."""
    return {name: value for name, value in values(profile).items() if value != SETTINGS[name].default}


def _at(server: Server, name: str, timeout_s: float) -> Served:
    target = identify(server.url, model=server.model, api_key=server.api_key)
    tokenizer, source = tokenizer_of(target, server.tokenizer)
    return Served(
        name=name or target.model,
        endpoint=Endpoint(base_url=target.url, model=target.model, api_key=server.api_key, timeout_s=timeout_s),
        tokenizer=tokenizer,
        max_model_len=target.max_model_len,
        facts={**target.facts, "tokenizer": source},
    )
