"""A server to measure: a child of ours with a profile of its own, or one that runs elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forebay.bench.client.endpoint import check_endpoint
from forebay.bench.client.load import Endpoint, Observer
from forebay.bench.plan import Workload
from forebay.bench.result import Result
from forebay.bench.serve import Measured, document, planned, run_once
from forebay.bench.server_process import ServerProcess, changed_settings
from forebay.bench.slo import SLO
from forebay.bench.target import base_url, identify, tokenizer_of
from forebay.bench.workload.spec import WorkloadSpec
from forebay.errors import BenchError
from forebay.profile import Profile
from forebay.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """url: where it is. model, api_key: as `identify` takes them. tokenizer: where the one that counts prompts is from
    (None: the served model's name). record: the file that it writes with --record, on this machine."""

    url: str
    model: str | None = None
    api_key: str | None = None
    tokenizer: str | None = None
    record: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that is ready. process: None if it is not ours. facts: what a document says of it."""

    name: str
    endpoint: Endpoint
    tokenizer: Tokenizer
    max_model_len: int | None
    facts: dict[str, Any]
    record: Path | None = None
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
        """One run per workload, in order. warmup: played first and not counted. Raises BenchError, with the server's
        last words if it died meanwhile."""
        if warmup is not None:
            self.run_once(warmup)
        measured = [self.run_once(workload, observer) for workload in workloads]
        return document(
            workloads, measured, target=self.facts, warmup=warmup, slo=slo, seed=seed, label=self.name,
            record=self.record,
        )  # fmt: skip

    def run_once(self, workload: Workload, observer: Observer | None = None) -> Measured:
        """Play one workload. Raises as `measure`."""
        with self._watched():
            return run_once(workload, self.endpoint, observer)

    def pause(self) -> None:
        """Let it use no processor, if it is ours."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.process.resume()

    def _watched(self) -> AbstractContextManager[None]:
        return nullcontext() if self.process is None else self.process.watched()


def check_target(what: Profile | Server, timeout_s: float) -> None:
    """Raises BenchError for a URL, key or timeout with which no request could be written, or a record that cannot be
    read: what is wrong before anything is asked."""
    there = what if isinstance(what, Server) else Server(url="http://127.0.0.1")
    base = base_url(there.url)
    check_endpoint(Endpoint(base_url=base, model=there.model or "", api_key=there.api_key, timeout_s=timeout_s))
    if there.record is not None and (there.record.is_dir() or not os.access(there.record, os.R_OK)):
        raise BenchError(
            f"--server-record {there.record} cannot be read; name the file that `forebay serve --record` writes, on "
            "this machine",
            param="server-record",
        )


@contextmanager
def served(what: Profile | Server, *, name: str = "", timeout_s: float = 600.0) -> Iterator[Served]:
    """The server that runs already, or a new one with the profile, which is stopped at the end. timeout_s: the longest
    a request may take. Raises BenchError, SetupError subclasses."""
    check_target(what, timeout_s)
    if isinstance(what, Server):
        yield _at(what, name, timeout_s)
        return
    with ServerProcess(what) as process:
        there = _at(Server(url=process.url, tokenizer=what.model.source, record=process.record), name, timeout_s)
        yield replace(there, process=process, facts={**there.facts, "settings": changed_settings(what)})


def _at(server: Server, name: str, timeout_s: float) -> Served:
    target = identify(server.url, model=server.model, api_key=server.api_key)
    tokenizer, source = tokenizer_of(target, server.tokenizer)
    return Served(
        name=name or target.model,
        endpoint=Endpoint(base_url=target.url, model=target.model, api_key=server.api_key, timeout_s=timeout_s),
        tokenizer=tokenizer,
        max_model_len=target.max_model_len,
        facts={**target.facts, "tokenizer": source},
        record=server.record,
    )
