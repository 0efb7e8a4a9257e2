"""Forebay beside other engines on the same model: sweep each engine's settings, then measure the best ones interleaved.

    python benchmarks/peers/run.py [--cells main,long] [--transport in_process,http] [--only NAME,...] [--rounds 3]
                                   [--skip REGEX] [--model smollm2-135m]

Cells come in groups (cells.py): main, with a sweep before it; long, contexts of thousands of tokens, in process. Writes
benchmarks/results/peers.json (everything, the sweeps and the foreign load included) and peers.md (the tables). What
this run does not measure, be it a group of cells or a transport, stays as an earlier run left it. A larger model has
cells and files of its own: peers-MODEL.json and .md. An engine that cannot be installed, started or asked is in the
tables with the reason.
"""

from __future__ import annotations

import argparse
import gzip
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cells
import document
import model_files
from catalog import peers_for
from cells import Cell, Group
from document import Findings
from floors import Floors
from peer import Limits, Peer, Setting
from processes import Driver, PeerError, Server
from rich.console import Console

from forebay.bench.interrupt import ended_by_sigterm
from forebay.bench.progress import StepBar
from forebay.tokenizer import Tokenizer, load_tokenizer
from forebay.weights.checkpoint import open_checkpoint

RESULTS = Path(__file__).resolve().parents[1] / "results"
# An engine with a server is measured over HTTP. These have none, or are the ones that others are compared with.
IN_PROCESS_PEERS = frozenset({"forebay", "llama_cpp", "openvino_genai", "transformers"})
THREADS = 2
CONTEXT = 512
FIRST_PORT = 18400


@dataclass
class Entry:
    """An engine with one of its settings. failure: why it has no (further) rows."""

    peer: Peer
    setting: Setting
    running: Any = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None

    @property
    def name(self) -> str:
        return f"{self.peer.name} {self.setting.name}"


@dataclass(frozen=True)
class Transport:
    """How an engine is reached. `start` gives a running one; `measure` makes one measurement of a cell."""

    name: str
    start: Callable[[Peer, Setting, Limits], Any]
    measure: Callable[[Any, Cell, Tokenizer, int], dict[str, Any]]
    includes: Callable[[Peer], bool]


@dataclass(frozen=True)
class Stage:
    """A group of cells over a transport."""

    transport: Transport
    group: Group

    @property
    def name(self) -> str:
        return cells.stage_name(self.transport.name, self.group.name)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.group.cells(self.transport.name)

    @property
    def limits(self) -> Limits:
        return Limits(threads=THREADS, concurrency=self.group.streams, max_len=self.group.max_len)

    def start(self, peer: Peer, setting: Setting) -> Any:
        return self.transport.start(peer, setting, self.limits)

    def about(self, entry: Entry) -> dict[str, Any]:
        setting = entry.setting
        return {"transport": self.transport.name, "engine": entry.peer.name, "setting": setting.name,
                "weights": setting.weights, "kv_dtype": setting.kv_dtype}  # fmt: skip


class Run:
    """One run of everything. `seed` counts up, so that no prompt is ever sent twice."""

    def __init__(self, model: str, only: set[str], rounds: int, skip: str | None) -> None:
        self.model, self.only, self.rounds, self.skip = model, only, rounds, skip
        self.console = Console(stderr=True)
        self.found = Findings()
        self.port = FIRST_PORT
        base = model_files.base_gguf() if model == model_files.BASE_MODEL else model_files.larger_gguf(model)
        checkpoint = open_checkpoint(base)
        self.tokenizer = load_tokenizer(checkpoint)
        checkpoint.close()
        self._seed = 0

    def peers(self) -> list[Peer]:
        """Those that install; why others do not is kept."""
        found = []
        for peer in peers_for(self.model):
            if self.only and peer.name not in self.only:
                continue
            self.console.print(f"installing {peer.name} (kept for next time)")
            reason = peer.try_install()
            if reason is None:
                found.append(peer)
            else:
                self.found.unavailable[peer.name] = reason
        return found

    def measure(self, stage: Stage, peers: Sequence[Peer]) -> None:
        """Sweep, then the best of each engine and precision, interleaved; without a sweep every setting."""
        chosen = [peer for peer in peers if stage.transport.includes(peer)]
        entries = [Entry(peer, setting) for peer in chosen for setting in self._settings(peer, stage.group)]
        if stage.group.sweep:
            swept = [row for entry in entries for row in self._sweep(stage, entry)]
            self.found.sweep += swept
            entries = [entry for peer in chosen for entry in _best(peer, swept)]
        floors = Floors(THREADS)
        self._interleave(stage, entries, floors)
        for entry in entries:
            key = f"{stage.name}/{entry.name}"
            self.found.rows += [stage.about(entry) | row for row in entry.rows]
            if entry.facts:
                self.found.facts[key] = entry.facts
            if entry.failure is not None:
                self.found.unavailable[key] = entry.failure
        self.found.rooflines[stage.name] = list(floors.rows())

    def _settings(self, peer: Peer, group: Group) -> list[Setting]:
        return [
            setting
            for setting in peer.settings
            if group.name in setting.groups
            and not (self.skip and re.fullmatch(self.skip, f"{peer.name} {setting.name}"))
        ]

    def _sweep(self, stage: Stage, entry: Entry) -> Iterator[dict[str, Any]]:
        about = stage.about(entry)
        measure = stage.transport.measure
        self.console.print(f"sweep {stage.name}: {entry.name}")
        try:
            with stage.start(entry.peer, entry.setting) as running:
                measure(running, stage.group.warmup, self.tokenizer, self._next_seed())
                for cell in stage.group.sweep:
                    row = measure(running, cell, self.tokenizer, self._next_seed())
                    if row["invalid"]:  # once more; what disturbed it may be over
                        row = measure(running, cell, self.tokenizer, self._next_seed())
                    yield about | row
        except PeerError as error:
            yield about | {"error": str(error)}

    def _interleave(self, stage: Stage, entries: list[Entry], floors: Floors) -> None:
        """Round by round, cell by cell, every engine once; the order turns, and who is not measured is paused."""
        total = len(entries) * self.rounds * len(stage.cells)
        with ExitStack() as stack, StepBar(stage.name, total) as bar:
            for entry in entries:
                self._bring_up(stack, stage, entry, floors)
            for round_ in range(self.rounds):
                turn = round_ % max(len(entries), 1)
                for cell in stage.cells:
                    floors.sample()
                    seed = self._next_seed()  # the same prompts for all
                    for entry in entries[turn:] + entries[:turn]:
                        bar.step(f"{cell.name}: {entry.name}")
                        _attempt(entry, partial(self._measure_cell, stage, entry, cell, seed, round_))
            for entry in entries:
                _attempt(entry, partial(self._score, entry, stage.group.scored_chunks))
                _add_floors(entry, stage, floors)

    def _bring_up(self, stack: ExitStack, stage: Stage, entry: Entry, floors: Floors) -> None:
        """Start it and let it warm up."""
        self.console.print(f"start {stage.name}: {entry.name}")
        try:
            entry.running = stack.enter_context(stage.start(entry.peer, entry.setting))
        except PeerError as error:
            entry.failure = str(error)
            return
        _attempt(entry, partial(self._warm_up, stage, entry))
        if _is_ours(entry.peer) and entry.failure is None:
            floors.add(entry.peer.model(entry.setting), entry.setting.kv_dtype, stage.cells)

    def _warm_up(self, stage: Stage, entry: Entry) -> None:
        """Its first request, whose time is kept, and some more."""
        measure, peer, setting = stage.transport.measure, entry.peer, entry.setting
        first = measure(entry.running, cells.FIRST, self.tokenizer, self._next_seed())
        entry.facts = {
            **peer.facts(setting),
            **entry.running.ready,
            "first_token_s": first["ttft_p50_s"],
            "kv_tokens": peer.kv_tokens(setting, stage.limits),
        }
        measure(entry.running, stage.group.warmup, self.tokenizer, self._next_seed())

    def _measure_cell(self, stage: Stage, entry: Entry, cell: Cell, seed: int, round_: int) -> None:
        row = stage.transport.measure(entry.running, cell, self.tokenizer, seed)
        entry.rows.append({"round": round_, **row})

    def _score(self, entry: Entry, count: int) -> None:
        """Perplexity, where the engine gives logits in process."""
        text = _quality_text()
        if not isinstance(entry.running, Driver) or text is None:
            return
        tokens = self.tokenizer.encode(text)[: count * CONTEXT]
        chunks = [tokens[start : start + CONTEXT] for start in range(0, len(tokens) - CONTEXT + 1, CONTEXT)]
        try:
            losses = entry.running.score(chunks)
        except PeerError as error:
            entry.facts["perplexity_error"] = str(error)
            return
        entry.facts |= {"mean_nll": statistics.fmean(losses), "scored_chunks": len(losses)}

    def start_server(self, peer: Peer, setting: Setting, limits: Limits) -> Server:
        self.port += 1
        return peer.start_server(setting, self.port, limits)

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed


def _attempt(entry: Entry, what: Callable[[], None]) -> None:
    """Do something with an engine, which is awake meanwhile. One that fails takes no further part."""
    if entry.failure is not None:
        return
    entry.running.resume()
    try:
        what()
    except PeerError as error:
        entry.failure = str(error)
    finally:
        entry.running.pause()


def _is_ours(peer: Peer) -> bool:
    return peer.name == "forebay"


def _add_floors(entry: Entry, stage: Stage, floors: Floors) -> None:
    """To rows of our own, whose packed weights we know."""
    if not _is_ours(entry.peer):
        return
    by_name = {cell.name: cell for cell in stage.cells}
    for row in entry.rows:
        row |= floors.of(entry.peer.model(entry.setting), entry.setting.kv_dtype, by_name[row["cell"]])


def _best(peer: Peer, swept: list[dict[str, Any]]) -> list[Entry]:
    """For each precision the setting with the highest geometric mean of token rates over the cells."""
    best: dict[tuple[str, str], tuple[float, Setting]] = {}
    for setting in peer.settings:
        own = (row for row in swept if (row["engine"], row["setting"]) == (peer.name, setting.name))
        rates = [row["output_token_rate"] for row in own if "error" not in row]
        if not rates:
            continue
        figure, precision = statistics.geometric_mean(rates), _precision(setting, peer.facts(setting))
        if precision not in best or figure > best[precision][0]:
            best[precision] = (figure, setting)
    return [Entry(peer, setting) for _, setting in best.values()]


def _precision(setting: Setting, facts: dict[str, Any]) -> tuple[str, str]:
    """Of the weights, and of the keys and values."""
    bits = facts.get("bits_per_weight") or 16.0
    return "4-bit" if bits < 6 else "8-bit" if bits < 12 else "float", setting.kv_dtype


def _quality_text() -> str | None:
    """Text for perplexity; None where the shared data set is absent (then it is left out)."""
    path = Path(__file__).resolve().parents[3] / "shared" / "data" / "prompts" / "wikitext2_valid.txt.gz"
    return gzip.decompress(path.read_bytes()).decode() if path.exists() else None


def stages(run: Run, groups: Sequence[Group], transports: Sequence[str]) -> list[Stage]:
    """In process first. A group that has no cells over a transport is left out there."""
    known = (
        Transport(
            "in_process",
            lambda peer, setting, limits: peer.start_driver(setting, limits),
            cells.measure_driver,
            lambda peer: peer.name in IN_PROCESS_PEERS,
        ),
        Transport("http", run.start_server, cells.measure_server, lambda peer: peer.has_server),
    )
    chosen = [transport for transport in known if transport.name in transports]
    return [Stage(transport, group) for transport in chosen for group in groups if group.cells(transport.name)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="engines, separated by commas")
    parser.add_argument("--cells", help="main (the default), long, or both with a comma between")
    parser.add_argument("--transport", default="in_process,http")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip", help="a regular expression: settings, as `ENGINE SETTING`, that are left out")
    models = (model_files.BASE_MODEL, *model_files.LARGER)
    parser.add_argument("--model", default=model_files.BASE_MODEL, choices=models)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for peers.json and peers.md")
    args = parser.parse_args()
    try:
        args.groups = cells.groups_for(args.model != model_files.BASE_MODEL, args.cells)
    except ValueError as error:
        parser.error(str(error))
    return args


def main() -> None:
    args = arguments()
    try:
        run = Run(args.model, set(filter(None, args.only.split(","))), args.rounds, args.skip)
    except PeerError as error:
        sys.exit(f"error: {error}")
    peers = run.peers()
    measured = stages(run, args.groups, args.transport.split(","))
    for stage in measured:
        run.measure(stage, peers)
    print(document.write(args.model, run.found, [stage.name for stage in measured], args.output))


if __name__ == "__main__":
    with ended_by_sigterm():
        main()
