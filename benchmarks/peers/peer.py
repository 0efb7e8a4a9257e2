"""The engines beside which Forebay is measured: how each is installed, set, started and asked.

    python benchmarks/peers/peer.py list
    python benchmarks/peers/peer.py install NAME
    python benchmarks/peers/peer.py smoke NAME [SETTING]

`catalog.PEERS` has them all. Each engine is one file with one subclass of `Peer`.
"""

from __future__ import annotations

import argparse
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from model_files import base_gguf, weight_facts
from processes import Driver, PeerError, Server
from venvs import work_dir

from forebay.tokenizer import load_tokenizer
from forebay.weights.checkpoint import open_checkpoint

SMOKE_TEXT = (
    "The river rises in the hills above the town, where the winter rain collects in a basin behind an old stone "
    "wall. From there it falls through a narrow gorge, turns the wheel of a mill that has not ground corn for some "
    "hundred years, and reaches the plain, where it is led into the fields by a system of ditches that the farmers keep"
)
DRIVERS = Path(__file__).resolve().parent / "drivers"


@dataclass(frozen=True)
class Setting:
    """One way to run an engine that a sweep tries.

    weights: format of the weights, a name that model_files knows. kv_dtype: how keys and values are stored.
    options: what the engine's own file makes of it, for its driver and its server alike. groups: of cells (cells.py)
    that it is measured in.
    """

    name: str
    weights: str
    kv_dtype: str
    options: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ("main",)


@dataclass(frozen=True)
class Limits:
    """What every engine is told before a run, so that all get the same room.

    threads: that compute. concurrency: most requests at once. max_len: most tokens of one request, prompt and output.
    prefix_cache: whether a server may reuse earlier prompts (the in-process drivers never do).
    """

    threads: int = 2
    concurrency: int = 8
    max_len: int = 1024
    prefix_cache: bool = False


class Peer(ABC):
    """An engine. Subclasses say how; every method that can fail raises PeerError with one sentence."""

    name: ClassVar[str]
    driver: ClassVar[str]  # file in drivers/
    has_server: ClassVar[bool] = False
    settings: ClassVar[tuple[Setting, ...]]  # the first is the one to use when none is named
    load_timeout_s: ClassVar[float] = 120.0

    @abstractmethod
    def install(self) -> None:
        """Install it into the work folder. Does nothing if that is done."""

    @abstractmethod
    def installed(self) -> bool:
        """Whether `install` has finished before."""

    @abstractmethod
    def model(self, setting: Setting) -> Path:
        """The model in the format of a setting, made if it is missing."""

    @abstractmethod
    def python(self) -> Path:
        """The interpreter that runs its driver."""

    def driver_options(self, setting: Setting, limits: Limits) -> dict[str, Any]:
        """What its driver is given beside "model", "threads", "concurrency", "max_len", "kv_tokens" and
        "kv_dtype"."""
        return dict(setting.options)

    def server_command(self, setting: Setting, limits: Limits, port: int) -> list[str]:
        raise PeerError(f"{self.name} has no OpenAI-compatible server of its own")

    def kv_tokens(self, setting: Setting, limits: Limits) -> int | None:
        """Tokens whose keys and values it is given room for. None: it takes what the requests in flight need."""
        return limits.max_len * limits.concurrency

    def served_name(self, setting: Setting) -> str:
        """The model's name in requests to its server."""
        return "model"

    def env(self, setting: Setting, limits: Limits) -> dict[str, str]:
        """Variables of its processes, added to ours."""
        return {}

    def facts(self, setting: Setting) -> dict[str, Any]:
        """What the formats of a setting cost: weight_bytes, weights, bits_per_weight, and their names."""
        formats = {"weights_format": setting.weights, "kv_dtype": setting.kv_dtype, "options": dict(setting.options)}
        return {**formats, **weight_facts(self.model(setting))}

    def setting(self, name: str | None = None) -> Setting:
        """A setting by name; None: the first."""
        if name is None:
            return self.settings[0]
        found = [s for s in self.settings if s.name == name]
        if not found:
            raise PeerError(f"{self.name} has no setting {name!r}; it has {', '.join(s.name for s in self.settings)}")
        return found[0]

    def try_install(self) -> str | None:
        """Install if needed. None when it is there, else the sentence that says why not."""
        try:
            self.install()
        except (PeerError, OSError) as error:
            return f"not installed: {error}"
        return None if self.installed() else "not installed: the installation left no trace"

    def start_driver(self, setting: Setting, limits: Limits = Limits()) -> Driver:
        """Load the engine in a process of its own; returns once it is ready."""
        options = {
            "model": str(self.model(setting)),
            "threads": limits.threads,
            "concurrency": limits.concurrency,
            "max_len": limits.max_len,
            "kv_tokens": self.kv_tokens(setting, limits),
            "kv_dtype": setting.kv_dtype,
            **self.driver_options(setting, limits),
        }
        driver = Driver(
            [str(self.python()), str(DRIVERS / self.driver), json.dumps(options)],
            env=self.env(setting, limits),
            log=work_dir() / "logs" / f"driver-{self.name}-{setting.name}.log",
            load_timeout_s=self.load_timeout_s,
        )
        driver.ready["facts"].update(self.facts(setting))
        return driver

    def start_server(self, setting: Setting, port: int, limits: Limits = Limits()) -> Server:
        """Start its server; returns once it has completed a request."""
        command = self.server_command(setting, limits, port)
        log = work_dir() / "logs" / f"server-{self.name}-{setting.name}.log"
        model = self.served_name(setting)
        server = Server(command, env=self.env(setting, limits), log=log, port=port, model=model)
        try:
            server.wait_ready(self.load_timeout_s)
        except BaseException:
            server.close()
            raise
        return server


def smoke(peer: Peer, setting: Setting) -> dict[str, Any]:
    """Four requests of 64 prompt tokens and 16 output tokens, two at a time: does it answer, sensibly, and how fast."""
    tokenizer = load_tokenizer(open_checkpoint(base_gguf()))
    ids = tokenizer.encode(SMOKE_TEXT)
    requests = [{"prompt_token_ids": ids[n : n + 64], "max_tokens": 16} for n in range(4)]
    with peer.start_driver(setting, Limits(concurrency=2)) as driver:
        driver.run(requests, 2)
        answer = driver.run(requests, 2)
        seconds = (answer["end_ns"] - answer["start_ns"]) / 1e9
        return {
            "engine": peer.name,
            "setting": setting.name,
            "output_tokens_per_s": round(sum(sum(r["token_counts"]) for r in answer["requests"]) / seconds, 1),
            "outputs": [tokenizer.decode(r["output_token_ids"]) for r in answer["requests"]],
            "peak_rss_mb": answer["peak_rss_mb"],
            **driver.ready,
        }


def main() -> None:
    from catalog import PEERS, peer_named

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("list", "install", "smoke"))
    parser.add_argument("name", nargs="?", help="an engine")
    parser.add_argument("setting", nargs="?", help="one of its settings; default: the first")
    args = parser.parse_args()
    if args.command == "list":
        for peer in PEERS:
            state = "installed" if peer.installed() else "not installed"
            print(f"{peer.name}: {state}; settings {', '.join(s.name for s in peer.settings)}")
        return
    try:
        peer = peer_named(args.name)
        peer.install()
        if args.command == "smoke":
            print(json.dumps(smoke(peer, peer.setting(args.setting))))
    except PeerError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
