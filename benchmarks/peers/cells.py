"""What is measured of each engine, and one measurement of it: in process through its driver, or over HTTP.

Both give the same RequestRecords, so the same functions make the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from processes import Driver, PeakPss, ProcessGroup, Server

from forebay.bench.client.load import Endpoint, run_load
from forebay.bench.machine_load import Meter, invalid_reasons
from forebay.bench.metrics import figures_of, summarize
from forebay.bench.plan import Workload
from forebay.bench.record import RequestRecord
from forebay.bench.workload.build import WorkloadSpec, build_workload
from forebay.tokenizer import Tokenizer


@dataclass(frozen=True)
class Cell:
    """A closed loop: `requests` prompts of `prompt` tokens, each answered with `output` tokens, `streams` at a time.

    ranked_by: the figure that orders the engines in its table. memory: whether the memory of an engine is read during
    the run, beside its peak.
    """

    name: str
    streams: int
    requests: int
    prompt: int = 256
    output: int = 128
    ranked_by: str = "output_token_rate"
    memory: bool = False

    @property
    def alone(self) -> bool:
        """One stream: the speeds of prompt (prompt / TTFT) and of decoding (1 / TPOT) can be told apart."""
        return self.streams == 1

    def workload(self, tokenizer: Tokenizer, seed: int) -> Workload:
        """Prompts of real text as token ids, none like another."""
        spec = WorkloadSpec(
            input=str(self.prompt),
            output=str(self.output),
            requests=self.requests,
            concurrency=self.streams,
            seed=seed,
        )
        return build_workload(spec, tokenizer)


@dataclass(frozen=True)
class Group:
    """Cells that are measured together, of engines that were started for them with the same room.

    max_len: most tokens of a request. sweep: what the settings of an engine compete in; without it all settings that
    name the group are measured. warmup: before anything counts. scored_chunks: of 512 tokens, for the perplexity.
    """

    name: str
    in_process: tuple[Cell, ...]
    max_len: int
    scored_chunks: int
    warmup: Cell
    http: tuple[Cell, ...] = ()
    sweep: tuple[Cell, ...] = ()

    @property
    def streams(self) -> int:
        """Most at once."""
        return max(cell.streams for cell in (*self.in_process, *self.http, *self.sweep, self.warmup))

    def cells(self, transport: str) -> tuple[Cell, ...]:
        return self.http if transport == "http" else self.in_process


FIRST = Cell("first request", 1, 1, prompt=64, output=4)
PROMPT = "prompt_rate"
_BATCHES = (Cell("8 streams", 8, 16), Cell("16 streams", 16, 32), Cell("32 streams", 32, 32, memory=True))
MAIN = Group(
    "main",
    in_process=(
        Cell("1 stream", 1, 4),
        Cell("prompt of 512", 1, 4, prompt=512, output=2, ranked_by=PROMPT),
        *_BATCHES,
    ),
    http=(Cell("1 stream", 1, 4), *_BATCHES),
    sweep=(Cell("16 streams", 16, 16, output=64),),
    warmup=Cell("warm-up", 2, 4, prompt=64, output=16),
    max_len=640,
    scored_chunks=20,
)
LONG = Group(  # fits the 8,192 positions of SmolLM2; one request a round each, since a prompt takes seconds
    "long",
    in_process=(
        Cell("context of 4,000", 1, 1, prompt=4000, output=64, ranked_by="decode_rate"),
        Cell("prompt of 6,000", 1, 1, prompt=6000, output=2, ranked_by=PROMPT),
        Cell("context of 7,900", 1, 1, prompt=7900, output=64, ranked_by="decode_rate", memory=True),
    ),
    warmup=Cell("warm-up", 1, 1, prompt=512, output=16),
    max_len=8000,
    scored_chunks=20,
)
LARGER = Group(  # of --model
    "larger",
    in_process=(
        Cell("1 stream", 1, 2, output=64),
        Cell("prompt of 512", 1, 2, prompt=512, output=2, ranked_by=PROMPT),
        Cell("8 streams", 8, 8, output=64, memory=True),
    ),
    warmup=Cell("warm-up", 2, 2, prompt=64, output=8),
    max_len=640,
    scored_chunks=4,
)
GROUPS = {group.name: group for group in (MAIN, LONG, LARGER)}


def groups_for(larger: bool, names: str | None) -> list[Group]:
    """The groups that a comma-separated list names; None: the main one. ValueError for a name that is none of them."""
    if larger:
        if names is not None:
            raise ValueError("--cells is for smollm2-135m; a larger model has cells of its own")
        return [LARGER]
    known = (MAIN, LONG)
    wanted = (names or MAIN.name).split(",")
    for name in wanted:
        if name not in {group.name for group in known}:
            raise ValueError(f"--cells {name!r} is not known; choose from {', '.join(group.name for group in known)}")
    return [group for group in known if group.name in wanted]


def stage_name(transport: str, group: str) -> str:
    """What a document calls the cells of a group over a transport; the main one has the transport's own name."""
    return transport if group in (MAIN.name, LARGER.name) else f"{transport}, {group}"


def stage_of(row: dict[str, Any]) -> str:
    """Of a row of measurements. One of a sweep that has failed has no cell, and sweeps are of the main group."""
    long = row.get("cell") in {cell.name for cell in LONG.in_process}
    return stage_name(row["transport"], LONG.name if long else MAIN.name)


def cell_named(name: str) -> Cell:
    """Of any group; those of equal names have equal prompts and streams."""
    known = (cell for group in GROUPS.values() for cell in (*group.in_process, *group.http))
    return next(cell for cell in known if cell.name == name)


def measure_driver(driver: Driver, cell: Cell, tokenizer: Tokenizer, seed: int) -> dict[str, Any]:
    """One run in process. Raises PeerError."""
    turns = list(cell.workload(tokenizer, seed).turns())
    requests = [{"prompt_token_ids": turn.prompt, "max_tokens": turn.max_tokens} for turn in turns]
    with _memory(driver, cell) as memory, Meter(driver.pids) as meter:
        answer = driver.run(requests, cell.streams)
    records = [_record(index, cell, one) for index, one in enumerate(answer["requests"])]
    figures = _figures(cell, records, meter, in_process=True)
    return figures | {"peak_rss_mb": answer["peak_rss_mb"]} | _pss(memory)


def measure_server(server: Server, cell: Cell, tokenizer: Tokenizer, seed: int) -> dict[str, Any]:
    """One run over HTTP."""
    workload = cell.workload(tokenizer, seed)
    with _memory(server, cell) as memory, Meter(server.pids) as meter:
        records = run_load(workload, Endpoint(base_url=server.url, model=server.model))
    return _figures(cell, records, meter, in_process=False) | _pss(memory)


def _memory(group: ProcessGroup, cell: Cell) -> Any:
    return PeakPss(group.pids) if cell.memory else nullcontext()


def _pss(memory: PeakPss | None) -> dict[str, float]:
    return {} if memory is None else {"pss_mb": memory.mb}


def _record(index: int, cell: Cell, one: dict[str, Any]) -> RequestRecord:
    times, counts = tuple(one["token_times_ns"]), tuple(one["token_counts"])
    return RequestRecord(
        index=index,
        intended_ns=one["sent_ns"],
        sent_ns=one["sent_ns"],
        token_ns=times,
        token_counts=counts,
        counted_by="chunks",
        end_ns=times[-1],
        planned_prompt_tokens=cell.prompt,
        planned_output_tokens=cell.output,
        prompt_tokens=cell.prompt,
        output_tokens=sum(counts),
        finish_reason="length",
    )


def _figures(cell: Cell, records: Sequence[RequestRecord], meter: Meter, *, in_process: bool) -> dict[str, Any]:
    """The figures of one run, flat; latencies in seconds. tokens_missing: answers shorter than asked for."""
    load = meter.facts()
    return {
        "cell": cell.name,
        "requests": len(records),
        "tokens_missing": sum(cell.output - record.output_tokens for record in records if record.completed),
        **figures_of(summarize([records])),
        "engine_cores": load.target_cores,
        "client_cores": load.client_cores,
        "foreign_share": load.foreign_share,
        "steal_share": load.steal_share,
        "invalid": invalid_reasons([load], in_process=in_process),
    }
