"""Virtual environments and built files in the work folder, each made once and stamped when it is whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from processes import PeerError

TORCH = "torch==2.13.*"  # the CPU build is taken where one is at hand; it must be installed first and alone


def work_dir() -> Path:
    """Where venvs, builds, model files and logs live: FOREBAY_PEERS_DIR, default ~/.cache/forebay/peers."""
    return Path(os.environ.get("FOREBAY_PEERS_DIR", "~/.cache/forebay/peers")).expanduser().resolve()


def run_logged(command: Sequence[str | Path], log: Path, *, env: dict[str, str] | None = None) -> None:
    """Run a command with its output appended to a log. Raises PeerError with the last lines if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    with log.open("a") as out:
        print("$", " ".join(words), file=out, flush=True)
        try:
            code = subprocess.run(words, stdout=out, stderr=out, env={**os.environ, **(env or {})}).returncode
        except OSError as error:
            raise PeerError(f"{words[0]} cannot be run: {error.strerror}") from error
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
        raise PeerError(f"{Path(words[0]).name} {' '.join(words[1:4])} ... failed ({code}); {log} ends:\n{tail}")


def made_once(path: Path, recipe: object, make: Callable[[], None]) -> Path:
    """`path`, made by `make` unless its stamp says that the same recipe has made it. A half-made one is made anew."""
    stamp = path.with_name(path.name + ".made")
    wanted = json.dumps(recipe)
    if path.exists() and stamp.exists() and stamp.read_text() == wanted:
        return path
    stamp.unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    make()
    stamp.write_text(wanted)
    return path


def is_made(path: Path) -> bool:
    """Whether `made_once` has finished it, by whatever recipe."""
    return path.exists() and path.with_name(path.name + ".made").exists()


class Venv:
    """One engine's environment, `venvs/NAME` in the work folder."""

    def __init__(self, name: str) -> None:
        self.path = work_dir() / "venvs" / name
        self.log = work_dir() / "logs" / f"install-{name}.log"

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def program(self, name: str) -> Path:
        return self.path / "bin" / name

    def make(self, recipe: object, fill: Callable[[], None]) -> None:
        """Create it and let `fill` install into it, once. Raises PeerError."""

        def create() -> None:
            run_logged([sys.executable, "-m", "venv", self.path], self.log)
            fill()

        made_once(self.path, recipe, create)

    def pip(self, *words: str | Path, env: dict[str, str] | None = None) -> None:
        """pip install. Raises PeerError."""
        run_logged([self.python, "-m", "pip", "install", "-q", *words], self.log, env=env)

    def pip_beside_torch(self, package: str, *others: str) -> None:
        """Install a package and what it requires except torch's companions, beside the torch that is there.

        torchvision and torchaudio from PyPI are built for CUDA: with them pip replaces the CPU build of torch.
        """
        name = package.partition("==")[0]
        self.pip("--no-deps", package)
        self.pip(TORCH, *self._requirements(name), *others)

    def _requirements(self, name: str) -> list[str]:
        """What an installed package requires without extras, but for torch and its companions."""
        ask = f"import json, importlib.metadata as m; print(json.dumps(m.requires({name!r}) or []))"
        done = subprocess.run([self.python, "-c", ask], capture_output=True, text=True)
        if done.returncode:
            raise PeerError(f"{name} was installed but is not found: {done.stderr.strip()[-300:]}")
        lines: list[str] = json.loads(done.stdout)
        return [line for line in lines if "extra ==" not in line and not line.startswith("torch")]
