"""Many streams on a real server for a while, a third of which hang up half way; see benchmarks/soak.py.

Every stream asks one of a fixed set of questions over a connection of its own. Text, log-probabilities (as bits) and
finish reason of a completed one must equal the solo answer; what a hung-up one has seen must be its beginning. Memory
is read from /proc, so all of this needs Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.memory import KINDS, MB, Growth, Sample, growth, look, num_descriptors, total
from tests.support.server_process import ServeCommand, eventually

LIMIT_MB_PER_MINUTE = 1.0
SAMPLE_EVERY_S = 2.0
NOTICED_S = 2.0  # how long after the last stream blocks may still be on their way back
MAX_PROBLEMS = 10  # the load ends early after so many
BLOCK_SIZE = 16
FILL_TOKENS = 256  # prompt tokens of a request that only touches blocks
SAFE_IDS = range(10, 500)  # token ids that every model has

_OPENINGS = ("Once upon a time there was", "The report says that", "To build a house you need", "Dear Sir or Madam,")
_WORDS = (
    *("a", "little", "dog", "and", "his", "friend", "went", "to", "the", "park", "because", "water", "was", "cold"),
    *("when", "she", "found", "three", "red", "boats", "under", "old", "trees", "they", "had", "never", "seen"),
    *("before", "so", "everyone", "said", "that", "we", "should", "look", "again", "with", "mother", "for", "bread"),
)

Say = Callable[[str], None]


def server_flags(model: str, streams: int, num_blocks: int, sets: Sequence[str] = ()) -> list[str]:
    """Arguments of `forebay serve`: all streams may run at once, in a cache of a fixed size."""
    flags = [f"kv.num_blocks={num_blocks}", f"kv.block_size={BLOCK_SIZE}", *sets]
    return [model, "--max-requests", str(streams), *(part for flag in flags for part in ("--set", flag))]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a stream has said so far; `finish_reason` is None until it has ended."""

    text: str = ""
    logprobs: tuple[float, ...] = ()
    finish_reason: str | None = None

    def begins(self, whole: Answer) -> bool:
        """Whether this is how `whole` begins. Logprobs are float32 values, which JSON carries exactly."""
        return whole.text.startswith(self.text) and whole.logprobs[: len(self.logprobs)] == self.logprobs

    def against(self, whole: Answer) -> str:
        """How the two differ, for people."""
        pairs = zip(self.logprobs, whole.logprobs, strict=False)
        equal = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), len(self.logprobs))
        return f"{equal} of {len(whole.logprobs)} logprobs are equal; {self.text!r} is not {whole.text!r}"


def questions(count: int, model: str) -> list[dict[str, Any]]:
    """Bodies of mixed prompt lengths (some with a common beginning) and output lengths, half greedy, half sampled."""
    bodies = []
    for i in range(count):
        draw = random.Random(i)
        words = [_OPENINGS[i % len(_OPENINGS)], *draw.choices(_WORDS, k=draw.choice((0, 5, 20, 60)))]
        body = {"model": model, "prompt": " ".join(words), "max_tokens": draw.randint(16, 64), "seed": i}
        bodies.append(body | {"temperature": 0.8 * (i % 2), "ignore_eos": True, "logprobs": 0, "stream": True})
    return bodies


def request_bytes(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def ask(
    address: tuple[str, int], body: dict[str, Any], *, leave_after: int | None = None, reset: bool = False
) -> Answer:
    """Stream one answer over a connection of its own; hang up once `leave_after` tokens came. Raises SoakError."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request_bytes(body))
        status = await reader.readline()
        if b" 200 " not in status:
            raise SoakError(f"{status!r} {await reader.read()!r}")
        return await _read(reader, leave_after)
    finally:
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, leave_after: int | None) -> Answer:
    answer = Answer()
    async for line in reader:  # every event is one line of one HTTP chunk; other lines are headers and framing
        if line == b"data: [DONE]\n":
            return answer
        if not line.startswith(b"data: "):
            continue
        event = json.loads(line[6:])
        if "choices" not in event:
            raise SoakError(f"an error event: {event}")
        choice = event["choices"][0]
        answer = Answer(
            answer.text + choice["text"],
            answer.logprobs + tuple(choice["logprobs"]["token_logprobs"]),
            choice["finish_reason"],
        )
        if leave_after is not None and len(answer.logprobs) >= leave_after:
            return answer
    raise SoakError(f"the stream ended early, after {len(answer.logprobs)} tokens")


class SoakError(Exception):
    """A stream was refused, failed or was cut off."""


@dataclass(slots=True)
class Tally:
    """What became of the streams. `problems`: one line for each that failed or differed."""

    completed: int = 0
    hung_up: int = 0
    tokens: int = 0
    problems: list[str] = field(default_factory=list)


async def solo_answers(address: tuple[str, int], bodies: list[dict[str, Any]], say: Say) -> list[Answer]:
    answers = []
    for number, body in enumerate(bodies, 1):
        answers.append(await ask(address, body))
        say(f"solo answers {number}/{len(bodies)}")
    return answers


async def touch_every_block(address: tuple[str, int], model: str, num_blocks: int) -> None:
    """Prompts that nothing else shares fill 1.25 times the cache: the first eviction comes when no block is untouched.

    The KV cache becomes resident page by page as it is first written, which is no growth of the kind sought here.
    """
    draw = random.Random("blocks")
    count = -(-5 * num_blocks * BLOCK_SIZE // (4 * FILL_TOKENS))
    for _ in range(count):
        prompt = draw.choices(SAFE_IDS, k=FILL_TOKENS)
        await ask(address, {"model": model, "prompt": prompt, "max_tokens": 1, "logprobs": 0, "stream": True})


class Load:
    """`streams` workers that take question after question until the time is up, and check each answer."""

    def __init__(self, address: tuple[str, int], bodies: list[dict[str, Any]], solo: list[Answer]) -> None:
        self._address = address
        self._bodies = bodies
        self._solo = solo
        self._next = 0
        self.tally = Tally()

    async def run(self, streams: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        await asyncio.gather(*(self._worker(deadline) for _ in range(streams)))

    async def _worker(self, deadline: float) -> None:
        while time.monotonic() < deadline and len(self.tally.problems) < MAX_PROBLEMS:
            number, self._next = self._next, self._next + 1
            try:
                await self._stream(number)
            except (SoakError, OSError, ValueError) as error:
                self.tally.problems.append(f"stream {number}: {error!r}")

    async def _stream(self, number: int) -> None:
        # three in a row ask the same, and the third one leaves
        which, leaves = number // 3 % len(self._bodies), number % 3 == 2
        whole = self._solo[which]
        got = await ask(
            self._address,
            self._bodies[which],
            leave_after=len(whole.logprobs) // 2 if leaves else None,
            reset=leaves and number % 2 == 0,  # every other one with a RST, which the server sees as an error
        )
        self.tally.tokens += len(got.logprobs)
        if leaves:
            self.tally.hung_up += 1
        else:
            self.tally.completed += 1
        if not (got.begins(whole) if leaves else got == whole):
            self.tally.problems.append(f"stream {number}, question {which}: {got.against(whole)}")


class Watch:
    """Looks at both processes, and at how many requests run, every SAMPLE_EVERY_S for as long as the task runs."""

    def __init__(self, server: ServeCommand, tally: Tally, say: Say) -> None:
        self._server = server
        self._tally = tally
        self._say = say
        self._pids = {"server": server.process.pid, "engine": server.engine_pid()}
        self.samples: dict[str, list[Sample]] = {name: [] for name in self._pids}
        self.running: list[float] = []

    async def run(self) -> None:
        began = time.monotonic()
        while True:
            now = time.monotonic() - began
            for name, pid in self._pids.items():
                self.samples[name].append(look(pid, now))
            self.running.append(await asyncio.to_thread(self._server.metric, "forebay_requests_running"))
            self._say(self._line(now))
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _line(self, now: float) -> str:
        tally = self._tally
        sizes = ", ".join(f"{name} {s[-1].rss / MB:.1f} MB" for name, s in self.samples.items())
        return (
            f"{now:.0f} s: {self.running[-1]:.0f} run, {tally.completed} completed, {tally.hung_up} hung up, "
            f"{len(tally.problems)} problems; resident: {sizes}"
        )


@dataclass(slots=True)
class Report:
    """What a soak found.

    finished: completions the server counted during the load, by reason. at_rest: what must be zero after it.
    growth: process -> kind of memory -> Growth. samples, running: the series, taken together.
    """

    tally: Tally
    distinct_answers: int
    finished: dict[str, float]
    at_rest: dict[str, float]
    growth: dict[str, dict[str, Growth]]
    samples: dict[str, list[Sample]]
    running: list[float]

    @property
    def streams_hold(self) -> bool:
        """Every stream gave its answer, and the server counted each once."""
        ended = self.tally.completed + self.tally.hung_up
        return not self.tally.problems and sum(self.finished.values()) == ended > 0

    @property
    def balanced(self) -> bool:
        return not any(self.at_rest.values())

    @property
    def steepest_mb_per_minute(self) -> float:
        return max(g.mb_per_minute for kinds in self.growth.values() for g in kinds.values())

    @property
    def passed(self) -> bool:
        return self.streams_hold and self.balanced and self.steepest_mb_per_minute < LIMIT_MB_PER_MINUTE


def soak(
    server: ServeCommand,
    model: str,
    *,
    seconds: float,
    streams: int,
    num_questions: int,
    num_blocks: int,
    say: Say = lambda _: None,
) -> Report:
    """Solo answers, then every block touched, then the load with its watch, then the balance. Raises SoakError if the
    server does not answer."""
    with _last_words(server):
        return _soak(server, questions(num_questions, model), seconds, streams, num_blocks, say)


@contextlib.contextmanager
def _last_words(server: ServeCommand) -> Iterator[None]:
    """An error that makes the rest pointless comes with the end of the server's log."""
    try:
        yield
    except (OSError, httpx.HTTPError, SoakError) as error:
        log = server.log.read_text().splitlines()[-20:]
        raise SoakError(
            "\n".join([f"{error!r}; exit code {server.process.poll()}, the log ends with:", *log])
        ) from error


def _soak(
    server: ServeCommand, bodies: list[dict[str, Any]], seconds: float, streams: int, num_blocks: int, say: Say
) -> Report:
    solo = asyncio.run(solo_answers(server.address, bodies, say))
    say("touching every block of the KV cache")
    asyncio.run(touch_every_block(server.address, bodies[0]["model"], num_blocks))
    load = Load(server.address, bodies, solo)
    watch = Watch(server, load.tally, say)
    before, descriptors = finished(server), num_descriptors(server.process.pid)
    asyncio.run(_watched(load.run(streams, seconds), watch))
    if len(load.tally.problems) >= MAX_PROBLEMS:
        raise SoakError("\n".join(["the load ended early:", *load.tally.problems]))
    at_rest: dict[str, float] = {}

    def balances() -> bool:
        leaked = max(0, num_descriptors(server.process.pid) - descriptors)
        at_rest.update(gauges(server), descriptors=leaked)
        return not any(at_rest.values())

    eventually(balances, NOTICED_S)
    parts = {**watch.samples, "both": total(watch.samples.values())}
    return Report(
        tally=load.tally,
        distinct_answers=len(set(solo)),
        finished={reason: count - before[reason] for reason, count in finished(server).items()},
        at_rest=at_rest,
        growth={name: {kind: growth(samples, kind) for kind in KINDS} for name, samples in parts.items()},
        samples=watch.samples,
        running=watch.running,
    )


async def _watched(load: Coroutine[Any, Any, None], watch: Watch) -> None:
    watching = asyncio.create_task(watch.run())
    await load
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def gauges(server: ServeCommand) -> dict[str, float]:
    """All zero when nothing runs."""
    blocks = {f"blocks_{state}": server.metric(f'forebay_blocks{{state="{state}"}}') for state in ("used", "promised")}
    return blocks | {f"requests_{s}": server.metric(f"forebay_requests_{s}") for s in ("running", "waiting")}


def finished(server: ServeCommand) -> dict[str, float]:
    """Completions the server has counted, by finish reason."""
    reasons = ("length", "stop", "abort", "error")
    return {r: server.metric(f'forebay_requests_finished_total{{reason="{r}"}}') for r in reasons}
