"""A model in the terminal: answers appear as they are made, and Ctrl-C ends an answer, not the program."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

import msgspec

from forebay.core.sampling_params import SamplingParams
from forebay.errors import ContextLengthError, UnsupportedModelError
from forebay.llm import LLM
from forebay.profile import Profile
from forebay.profile.schema import with_values
from forebay.tokenizer import ChatPrompt

Message = dict[str, Any]
COMMANDS = "/reset forgets the conversation, /exit leaves, Ctrl-C cancels an answer"
# C0 controls but tab and newline, DEL and C1: a model's text must not drive the terminal
_UNPRINTABLE = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "�")


@dataclass(slots=True)
class Answer:
    """What one request gave."""

    seed: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    interrupted: bool = False
    seconds: float = 0.0

    def as_json(self) -> str:
        known = ("text", "token_ids", "finish_reason", "seed")
        return msgspec.json.encode({name: getattr(self, name) for name in known}).decode()

    def summary(self) -> str:
        rate = len(self.token_ids) / self.seconds if self.seconds else 0.0
        end = "interrupted" if self.interrupted else f"finish reason {self.finish_reason}"
        return f"[{len(self.token_ids)} tokens in {self.seconds:.1f} s ({rate:.0f} a second), {end}, seed {self.seed}]"


class TerminalSession:
    """A loaded model and the terminal. `model` overrides the profile's. Raises SetupError subclasses."""

    def __init__(self, profile: Profile, model: str | None = None) -> None:
        given = profile if model is None else with_values(profile, {"model.source": model})
        self._llm = LLM(profile=given, progress=True)

    @property
    def model_name(self) -> str:
        return self._llm.info.model_name

    def render(self, messages: list[Message]) -> ChatPrompt:
        """Messages through the chat template. Raises UnsupportedModelError if there is none."""
        if self._llm.tokenizer.chat_template is None:
            raise UnsupportedModelError(
                f"{self.model_name} has no chat template; use `forebay generate` with a plain prompt", param="model"
            )
        return self._llm.tokenizer.chat_prompt(messages)

    def answer(
        self, prompt: str | ChatPrompt, sampling: SamplingParams, *, add_special_tokens: bool, show: bool = True
    ) -> Answer:
        """Generate, showing text on stdout as it comes and a summary on stderr. The first Ctrl-C ends it early."""
        seed = secrets.randbits(53) if sampling.seed is None else sampling.seed
        answer, began = Answer(seed), time.monotonic()
        stream = self._llm.stream(
            prompt, msgspec.structs.replace(sampling, seed=seed), add_special_tokens=add_special_tokens
        )
        with _interruptible() as interrupted, closing(stream) as chunks:
            for chunk in chunks:
                answer.text += chunk.text
                answer.token_ids += chunk.token_ids
                answer.finish_reason = chunk.finish_reason
                if show:
                    _show(chunk.text)
                if interrupted():
                    answer.interrupted = True
                    break
        answer.seconds = time.monotonic() - began
        if show:
            print(flush=True)
            print(answer.summary(), file=sys.stderr, flush=True)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._llm.close()


def converse(session: TerminalSession, sampling: SamplingParams, system: str | None) -> None:
    """Read messages from stdin and answer them until /exit or the end of input."""
    beginning: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    history = list(beginning)
    session.render([*history, {"role": "user", "content": "?"}])  # no template, or one that refuses this: say so now
    print(f"{session.model_name}: {COMMANDS}", file=sys.stderr, flush=True)
    for line in _lines():
        match line:
            case "/exit":
                return
            case "/reset":
                history = list(beginning)
                print("(a new conversation)", file=sys.stderr, flush=True)
            case _ if line.startswith("/") and " " not in line:
                print(f"unknown command {line}: {COMMANDS}", file=sys.stderr, flush=True)
            case _:
                _take_turn(session, sampling, history, line)


def _take_turn(session: TerminalSession, sampling: SamplingParams, history: list[Message], text: str) -> None:
    """Add the user's message and the answer (what there is of it) to the history."""
    asked = [*history, {"role": "user", "content": text}]
    try:
        answer = session.answer(session.render(asked), sampling, add_special_tokens=False)
    except ContextLengthError as error:
        print(f"{error.message}; /reset starts a new conversation", file=sys.stderr, flush=True)
        return
    history[:] = [*asked, {"role": "assistant", "content": answer.text}]


def _lines() -> Iterator[str]:
    """Non-empty lines of stdin; with a prompt and line editing if it is a terminal."""
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401  # importing it gives input() history and editing
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            print("\n(/exit or Ctrl-D leaves)", file=sys.stderr, flush=True)
            continue
        if line:
            yield line


def _show(text: str) -> None:
    print(text.translate(_UNPRINTABLE) if sys.stdout.isatty() else text, end="", flush=True)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C was pressed; a second press raises KeyboardInterrupt.

    An exception from a signal could strike inside the engine and leave it in an odd state; a flag cannot.
    """
    pressed = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)
