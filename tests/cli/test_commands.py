"""The command as a user runs it: exit codes, output, one-line errors."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli import COMMANDS
from tests.support.tiny_chat import tiny_chat_model

FOREBAY = [sys.executable, "-m", "forebay.cli"]
REFERENCE = ["--backend", "reference"]
GREEDY = ["--temperature", "0", "--max-tokens", "8"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_chat_model(tmp_path_factory.mktemp("model")))


def forebay(*arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **(env or {})}
    return subprocess.run(
        [*FOREBAY, *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The single line on stderr of a command that failed with `code`."""
    assert done.returncode == code, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("forebay: ")
    return done.stderr


def test_help_lists_every_command_and_loads_none() -> None:
    done = forebay("--help")
    assert done.returncode == 0
    for name, summary in COMMANDS.items():
        assert re.search(rf"{name}\s+{re.escape(summary)}", done.stdout)
    probe = "import sys, forebay.cli\ntry:\n    forebay.cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
    probe += "print(sorted(m for m in sys.modules if m.startswith('forebay.') or m in ('numpy', 'fastapi', 'zmq')))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert loaded.splitlines()[-1] == "['forebay.cli', 'forebay.errors', 'forebay.version']"


def test_help_is_fast() -> None:
    def cpu_seconds() -> float:  # not the clock on the wall: other work on the machine is not ours
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = cpu_seconds()
    assert forebay("--help").returncode == 0
    assert cpu_seconds() - before < 0.3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(command: str) -> None:
    done = forebay(command, "--help")
    assert done.returncode == 0
    assert f"forebay {command}" in done.stdout.partition("Examples:")[2]


@pytest.mark.parametrize("command", ["serve", "generate", "chat", "doctor"])
def test_profile_flags_are_everywhere(command: str) -> None:
    text = forebay(command, "--help").stdout
    flags = ("--profile", "--set", "--threads", "--isa", "--backend", "--max-model-len", "--token-budget", "--kv-dtype")
    for flag in (*flags, "--weights", "--no-prefix-cache"):
        assert flag in text


def test_version() -> None:
    done = forebay("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("forebay ")


def test_unknown_commands_suggest_the_nearest() -> None:
    done = forebay("srve")
    assert done.returncode == 2
    assert "Did you mean 'serve'?" in done.stderr


def test_generate_prints_the_text(model: str) -> None:
    done = forebay("generate", model, "Once upon a time", *GREEDY, *REFERENCE)
    assert done.returncode == 0
    assert done.stdout == ", there was a little girl\n"
    assert "8 tokens" in done.stderr


def test_generate_json_repeats_with_its_seed(model: str) -> None:
    flags = ["--max-tokens", "12", "--json", *REFERENCE]
    first = json.loads(forebay("generate", model, "Once upon a time", *flags).stdout)
    again = json.loads(forebay("generate", model, "Once upon a time", *flags, "--seed", str(first["seed"])).stdout)
    assert first == again
    assert (len(first["token_ids"]), first["finish_reason"]) == (12, "length")


def test_generate_reads_stdin_and_stops(model: str) -> None:
    done = forebay("generate", model, "-", *GREEDY, "--stop", "little", *REFERENCE, stdin="Once upon a time")
    assert done.stdout == ", there was a \n"


@pytest.mark.parametrize("command", ["generate", "generate --json", "chat", "doctor"])
def test_a_reader_that_leaves_is_no_error(command: str, model: str) -> None:
    """As in `forebay generate ... | head -c 1`."""
    name, *flags = command.split()
    prompt = ["Once"] if name == "generate" else []
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*FOREBAY, name, model, *prompt, *REFERENCE, *flags],
        input="hello\n", stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 1
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr


def test_generate_through_the_chat_template(model: str) -> None:
    plain = forebay("generate", model, "hello", *GREEDY, *REFERENCE).stdout
    chat = forebay("generate", model, "--chat", "hello", *GREEDY, *REFERENCE).stdout
    rendered = forebay("generate", model, "user: hello\nassistant:", *GREEDY, *REFERENCE).stdout
    assert chat == rendered != plain


def test_wrong_requests_are_one_line(model: str) -> None:
    too_long = forebay("generate", model, "hello", "--max-tokens", "5000", *REFERENCE)
    assert "context length is 512" in one_line(too_long, 1)
    assert "temperature must be a number from 0" in one_line(forebay("generate", model, "a", "--temperature", "-1"), 1)
    assert forebay("generate", "a", "b", "c").returncode == 2


def test_setup_errors_are_one_line_with_exit_code_2(model: str, tmp_path: Path) -> None:
    assert "no-such-model" in one_line(forebay("generate", "no-such-model", "x"), 2)
    assert "no-such-model" in one_line(forebay("pull", "no-such-model"), 2)
    assert "backend.threads must be an integer" in one_line(forebay("doctor", model, "--threads", "many"), 2)
    assert "did you mean 'kv.block_size'" in one_line(forebay("doctor", model, "--set", "kv.blok_size=3"), 2)
    assert "is not a setting" in one_line(forebay("doctor", model, "--set", "nonsense"), 2)
    profile = tmp_path / "p.toml"
    profile.write_text("[kv]\nblock_sise = 3\n")
    assert "kv.block_size" in one_line(forebay("doctor", model, "--profile", str(profile)), 2)
    bad = forebay("serve", model, env={"FOREBAY_LOG_LEVEL": "loud"})
    assert "FOREBAY_LOG_LEVEL" in one_line(bad, 2)


def test_doctor_explains_every_setting(model: str, tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text("[kv]\nblock_size = 32\n[scheduler]\ntoken_budget = 128\n")
    flags = [
        "--profile",
        str(profile),
        "--token-budget",
        "256",
        "--no-prefix-cache",
        "--set",
        "kv.dtype=f32",
        *REFERENCE,
    ]
    report = json.loads(forebay("doctor", model, *flags, "--json").stdout)
    settings = report["settings"]
    values = {name: settings[name]["value"] for name in ("kv.block_size", "scheduler.token_budget", "kv.prefix_cache")}
    assert values == {"kv.block_size": 32, "scheduler.token_budget": 256, "kv.prefix_cache": False}
    assert settings["kv.dtype"]["value"] == "f32"
    assert all(entry["reason"] for entry in settings.values())
    assert settings["model.max_model_len"] == {"value": 512, "reason": "the model's own limit"}
    assert {"processor", "memory"} <= set(report["machine"])
    table = forebay("doctor", model, *flags)
    assert table.returncode == 0
    for name in settings:
        assert name in table.stdout


def test_doctor_explains_converted_weights(model: str) -> None:
    report = json.loads(forebay("doctor", model, "--weights", "int4", *REFERENCE, "--json").stdout)
    entry = report["settings"]["model.weights"]
    assert entry["value"] == "int4"
    assert "matrices f32 to q4_1; " in entry["reason"]
    assert "5 matrices f32 as stored (172 columns are not a multiple of 32)" in entry["reason"]
    assert "1 matrix f32 to q8_0 (embedding and head keep 8 bits)" in entry["reason"]
    assert "/weights-q4_1:forebay-1+" in report["answer_class"]
    stored = json.loads(forebay("doctor", model, *REFERENCE, "--json").stdout)
    assert stored["settings"]["model.weights"]["value"] == "stored"
    assert stored["profile"] != report["profile"]


def test_generate_with_converted_weights(model: str) -> None:
    done = forebay("generate", model, "Once upon a time", "--weights", "int8", *GREEDY, *REFERENCE)
    assert done.stdout == ", there was a little girl\n"
    wrong = forebay("generate", model, "Once", "--weights", "int3", *REFERENCE)
    assert 'model.weights must be one of "stored", "int8", "int4", "bf16", "f32" or "auto"' in one_line(wrong, 2)


def test_doctor_shows_the_machine_even_if_the_model_is_missing() -> None:
    done = forebay("doctor", "no-such-model")
    assert done.returncode == 2
    assert "processor" in done.stdout


def test_pull_prints_the_path(model: str) -> None:
    assert forebay("pull", model).stdout == f"{model}\n"


def test_chat_through_a_pipe(model: str) -> None:
    script = "hello\n\n/nonsense\n/reset\nhello\n/exit\nnever read\n"
    done = forebay("chat", model, "--seed", "4", "--max-tokens", "8", *REFERENCE, stdin=script)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second  # /reset: the same conversation again
    assert "unknown command /nonsense" in done.stderr
    assert "(a new conversation)" in done.stderr


def test_chat_remembers(model: str) -> None:
    flags = ["--seed", "4", "--max-tokens", "8", *REFERENCE]
    done = forebay("chat", model, *flags, "--system", "Be kind.", stdin="hello\nand then?\n")
    first, second = done.stdout.splitlines()
    dialogue = f"system: Be kind.\nuser: hello\nassistant: {first}\nuser: and then?\nassistant:"
    alone = forebay("generate", model, dialogue, "--temperature", "0.7", *flags).stdout
    assert alone == f"{second}\n"


def test_chat_survives_a_conversation_that_is_too_long(model: str) -> None:
    script = "word " * 600 + "\nhello\n"
    done = forebay("chat", model, "--max-tokens", "4", *REFERENCE, stdin=script)
    assert done.returncode == 0, done.stderr
    assert "/reset starts a new conversation" in done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_chat_needs_a_template(model: str, tmp_path: Path) -> None:
    plain = tiny_chat_model(tmp_path)
    (plain / "chat_template.jinja").unlink()
    assert "has no chat template" in one_line(forebay("chat", str(plain), *REFERENCE), 2)


class Terminal:
    """`forebay chat` on a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen([*FOREBAY, *arguments], stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self._text = ""

    def read_until(self, what: str) -> str:
        """Everything up to `what`; later calls go on from there."""
        while what not in self._text:
            self._text += os.read(self._master, 4096).decode()
        before, _, self._text = self._text.partition(what)
        return before

    def interrupt_until(self, what: str) -> None:
        """SIGINT until `what` is shown: one that comes between prompt and read waits for the next key in Python."""
        while what not in self._text:
            self.process.send_signal(signal.SIGINT)
            while what not in self._text and select.select([self._master], [], [], 0.5)[0]:
                self._text += os.read(self._master, 4096).decode()
        self.read_until(what)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(model: str) -> Iterator[Terminal]:
    made = Terminal("chat", model, "--max-tokens", "400", "--seed", "1", *REFERENCE)
    yield made
    made.close()


def test_ctrl_c_cancels_the_answer_only(terminal: Terminal) -> None:
    terminal.read_until("> ")
    terminal.type("Tell me a long story.\n")
    terminal.read_until("\n")  # the echo
    terminal.read_until(" ")  # the answer has begun
    terminal.process.send_signal(signal.SIGINT)
    assert "interrupted" in terminal.read_until("seed 1]")
    terminal.read_until("> ")
    terminal.interrupt_until("/exit or Ctrl-D leaves")  # at the prompt: a hint, no end
    terminal.read_until("> ")
    terminal.type("/exit\n")
    assert terminal.process.wait(timeout=20) == 0
