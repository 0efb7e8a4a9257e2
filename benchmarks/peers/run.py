"""Forebay beside other engines on the same model: sweep each engine's settings, then measure the best ones interleaved.

    python benchmarks/peers/run.py [--only NAME,...] [--transport in_process,http] [--rounds 3] [--skip REGEX]

Writes benchmarks/results/peers.json (everything, the sweeps and the foreign load included) and peers.md (the tables).
The rows of a transport that this run does not measure stay as an earlier run left them. An engine
that cannot be installed or started is in the tables with the reason.
"""

from __future__ import annotations

import argparse
import gzip
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cells
from catalog import PEERS
from cells import Cell
from peer import Limits, Peer, Setting
from processes import Driver, PeerError, Server
from rich.console import Console
from tables import as_markdown

from forebay.bench.facts import command_line, new_result
from forebay.bench.interrupt import ended_by_sigterm
from forebay.bench.progress import StepBar
from forebay.bench.result import read_result, write_result
from forebay.tokenizer import Tokenizer, load_tokenizer
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.sources import resolve_source

RESULTS = Path(__file__).resolve().parents[1] / "results"
MODEL = "smollm2-135m"
# An engine with a server is measured over HTTP. These have none, or are the ones that others are compared with.
IN_PROCESS_PEERS = frozenset({"forebay", "llama_cpp", "openvino_genai", "transformers"})
MAX_STREAMS = 32
CONTEXT = 512
SCORED_CHUNKS = 20
FIRST_PORT = 18400


@dataclass
class Entry:
    """An engine with one format of weights, and the setting that did best with it."""

    peer: Peer
    setting: Setting
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.peer.name} {self.setting.weights}"


@dataclass(frozen=True)
class Transport:
    """How an engine is reached. `start` gives a running one; `measure` makes one measurement of a cell."""

    name: str
    cells: Sequence[Cell]
    start: Callable[[Peer, Setting, Limits], Any]
    measure: Callable[[Any, Cell, Tokenizer, int], dict[str, Any]]
    includes: Callable[[Peer], bool]


class Run:
    """One run of everything. `seed` counts up, so that no prompt is ever sent twice."""

    def __init__(self, only: set[str], rounds: int, skip: str | None) -> None:
        self.only, self.rounds, self.skip = only, rounds, skip
        self.console = Console(stderr=True)
        self.sweep_rows: list[dict[str, Any]] = []
        self.unavailable: dict[str, str] = {}
        self.port = FIRST_PORT
        checkpoint = open_checkpoint(resolve_source(MODEL, progress=True))
        self.tokenizer = load_tokenizer(checkpoint)
        checkpoint.close()
        self._seed = 0

    def peers(self) -> list[Peer]:
        """Those that install; why others do not is kept."""
        found = []
        for peer in PEERS:
            if self.only and peer.name not in self.only:
                continue
            self.console.print(f"installing {peer.name} (kept for next time)")
            reason = peer.try_install()
            if reason is None:
                found.append(peer)
            else:
                self.unavailable[peer.name] = reason
        return found

    def measured(self, transport: Transport, peers: Sequence[Peer]) -> list[Entry]:
        """Sweep, then the best of each engine and format of weights, interleaved."""
        chosen = [peer for peer in peers if transport.includes(peer)]
        swept = [row for peer in chosen for row in self._sweep(transport, peer)]
        self.sweep_rows += swept
        entries = [entry for peer in chosen for entry in _best(peer, swept)]
        self._interleave(transport, entries)
        return entries

    def _sweep(self, transport: Transport, peer: Peer) -> Iterator[dict[str, Any]]:
        for setting in peer.settings:
            about = {"transport": transport.name, "engine": peer.name, "setting": setting.name}
            if self.skip and re.fullmatch(self.skip, f"{peer.name} {setting.name}"):
                continue
            self.console.print(f"sweep {transport.name}: {peer.name} {setting.name}")
            try:
                with transport.start(peer, setting, self._limits(MAX_STREAMS)) as running:
                    transport.measure(running, cells.WARMUP, self.tokenizer, self._next_seed())
                    for cell in cells.SWEEP:
                        row = transport.measure(running, cell, self.tokenizer, self._next_seed())
                        if row["invalid"]:  # once more; what disturbed it may be over
                            row = transport.measure(running, cell, self.tokenizer, self._next_seed())
                        yield about | row
            except PeerError as error:
                yield about | {"error": str(error)}

    def _interleave(self, transport: Transport, entries: list[Entry]) -> None:
        """Round by round, cell by cell, every engine once; the order turns, and who is not measured is paused."""
        total = len(entries) * self.rounds * len(transport.cells)
        with ExitStack() as stack, StepBar(transport.name, total) as bar:
            running = {}
            for entry in entries:
                running[entry.name] = stack.enter_context(self._started(transport, entry))
                transport.measure(running[entry.name], cells.WARMUP, self.tokenizer, self._next_seed())
                running[entry.name].pause()
            for round_ in range(self.rounds):
                turn = round_ % max(len(entries), 1)
                for cell in transport.cells:
                    seed = self._next_seed()  # the same prompts for all
                    for entry in entries[turn:] + entries[:turn]:
                        bar.step(f"{cell.name}: {entry.name}")
                        with _awake(running[entry.name]):
                            row = transport.measure(running[entry.name], cell, self.tokenizer, seed)
                        entry.rows.append({"round": round_, **row})
            for entry in entries:
                with _awake(running[entry.name]):
                    self._score(entry, running[entry.name])

    def _started(self, transport: Transport, entry: Entry) -> Any:
        running = transport.start(entry.peer, entry.setting, self._limits(MAX_STREAMS))
        entry.facts = {**entry.peer.facts(entry.setting), **getattr(running, "ready", {})}
        return running

    def _score(self, entry: Entry, running: Any) -> None:
        """Perplexity, where the engine gives logits in process."""
        text = _quality_text()
        if not isinstance(running, Driver) or text is None:
            return
        tokens = self.tokenizer.encode(text)[: SCORED_CHUNKS * CONTEXT]
        chunks = [tokens[start : start + CONTEXT] for start in range(0, len(tokens) - CONTEXT + 1, CONTEXT)]
        try:
            losses = running.score(chunks)
        except PeerError as error:
            entry.facts["perplexity_error"] = str(error)
            return
        entry.facts |= {"mean_nll": statistics.fmean(losses), "scored_chunks": len(losses)}

    def start_server(self, peer: Peer, setting: Setting, limits: Limits) -> Server:
        self.port += 1
        return peer.start_server(setting, self.port, limits)

    def _limits(self, streams: int) -> Limits:
        return Limits(threads=2, concurrency=streams, max_len=640)

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed


@contextmanager
def _awake(running: Any) -> Iterator[None]:
    running.resume()
    try:
        yield
    finally:
        running.pause()


def _best(peer: Peer, swept: list[dict[str, Any]]) -> list[Entry]:
    """For each precision of weights the setting with the highest geometric mean of token rates over the cells."""
    best: dict[str, tuple[float, Setting]] = {}
    for setting in peer.settings:
        own = (row for row in swept if (row["engine"], row["setting"]) == (peer.name, setting.name))
        rates = [row["output_token_rate"] for row in own if "error" not in row]
        if not rates:
            continue
        figure, precision = statistics.geometric_mean(rates), _precision(peer.facts(setting))
        if precision not in best or figure > best[precision][0]:
            best[precision] = (figure, setting)
    return [Entry(peer, setting) for _, setting in best.values()]


def _precision(facts: dict[str, Any]) -> str:
    bits = facts.get("bits_per_weight") or 16.0
    return "4-bit" if bits < 6 else "8-bit" if bits < 12 else "float"


def _quality_text() -> str | None:
    """Text for perplexity; None where the shared data set is absent (then it is left out)."""
    path = Path(__file__).resolve().parents[3] / "shared" / "data" / "prompts" / "wikitext2_valid.txt.gz"
    return gzip.decompress(path.read_bytes()).decode() if path.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="engines, separated by commas")
    parser.add_argument("--transport", default="in_process,http")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip", help="a regular expression: settings, as `ENGINE SETTING`, that the sweep leaves out")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for peers.json and peers.md")
    args = parser.parse_args()
    run = Run(set(filter(None, args.only.split(","))), args.rounds, args.skip)
    peers = run.peers()
    transports = (
        Transport(
            "in_process",
            cells.IN_PROCESS,
            lambda peer, setting, limits: peer.start_driver(setting, limits),
            cells.measure_driver,
            lambda peer: peer.name in IN_PROCESS_PEERS,
        ),
        Transport("http", cells.HTTP, run.start_server, cells.measure_server, lambda peer: peer.has_server),
    )
    rows: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    for transport in transports:
        if transport.name not in args.transport.split(","):
            continue
        for entry in run.measured(transport, peers):
            about = {"transport": transport.name, "engine": entry.peer.name, "setting": entry.setting.name,
                     "weights": entry.setting.weights}  # fmt: skip
            rows += [about | row for row in entry.rows]
            facts[f"{transport.name}/{entry.name}"] = entry.facts
    _write(run, rows, facts, args.output)


def _write(run: Run, rows: list[dict[str, Any]], facts: dict[str, Any], folder: Path) -> None:
    before = _others(folder / "peers.json", {row["transport"] for row in rows})
    rows = [*before["rows"], *rows]
    reasons = sorted({reason for row in rows for reason in row["invalid"]})
    result = new_result(
        "peers",
        label=f"{MODEL} beside other engines",
        reasons=reasons,
        target={
            "facts": {**before["facts"], **facts},
            "sweep": [*before["sweep"], *run.sweep_rows],
            "unavailable": run.unavailable,
            "commands": [*before["commands"], command_line()],
        },
        rows=rows,
    )
    write_result(result, folder / "peers.json")
    (folder / "peers.md").write_text(as_markdown(result))
    print(as_markdown(result))


def _others(path: Path, measured: set[str]) -> dict[str, Any]:
    """Of an earlier document what belongs to transports that are not measured now."""
    if not path.exists():
        return {"rows": [], "facts": {}, "sweep": [], "commands": []}
    earlier = read_result(path)
    target = earlier.target
    return {
        "rows": [row for row in earlier.rows if row["transport"] not in measured],
        "facts": {name: fact for name, fact in target["facts"].items() if name.partition("/")[0] not in measured},
        "sweep": [row for row in target["sweep"] if row["transport"] not in measured],
        "commands": target.get("commands", []),
    }


if __name__ == "__main__":
    with ended_by_sigterm():
        main()
