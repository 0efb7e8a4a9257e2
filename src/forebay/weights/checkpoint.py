"""A checkpoint is a config, named tensors and side files, whatever it is stored as."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from forebay.errors import ModelSourceError
from forebay.ops.tensor import Tensor
from forebay.weights.gguf import MAGIC, GGUFCheckpoint
from forebay.weights.safetensors import CONFIG_NAME, PICKLE_SUFFIXES, SafetensorsCheckpoint, refuse_pickle


class Checkpoint(Protocol):
    """kind: "gguf" or "hf". config: GGUF metadata (key -> value) or config.json, as read: nothing in it is trusted."""

    @property
    def kind(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def digest(self) -> str:
        """Hex identity of the content, from the headers and a sample of every tensor; the same wherever it lies."""
        ...

    def tensor_names(self) -> list[str]: ...

    def tensor(self, name: str) -> Tensor:
        """The tensor as stored. ModelFormatError names one that is not there, UnsupportedModelError its type."""
        ...

    def file(self, name: str) -> bytes | None:
        """A side file (tokenizer.json, chat_template.jinja ...), None where there is none; always None for GGUF."""
        ...

    def close(self) -> None: ...


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a Hugging Face folder.

    Raises ModelSourceError (not there, not readable), ModelFormatError (corrupt) and UnsupportedModelError (pickles,
    tensor types, split files).
    """
    try:
        return _open_folder(path) if path.is_dir() else _open_file(path)
    except OSError as error:
        raise ModelSourceError(f"{path} cannot be read: {error.strerror or error}", param="model") from error


def _open_folder(path: Path) -> Checkpoint:
    ggufs = sorted(path.glob("*.gguf"))
    if ggufs and not (path / CONFIG_NAME).exists():
        raise ModelSourceError(f"{path} is a folder of GGUF files: name one, such as {ggufs[0]}", param="model")
    return SafetensorsCheckpoint(path)


def _open_file(path: Path) -> Checkpoint:
    if path.suffix == ".safetensors" and path.exists():
        raise ModelSourceError(f"{path} is one file of a model: give its folder, {path.parent}", param="model")
    if path.suffix in PICKLE_SUFFIXES and path.is_file() and not _starts_with_magic(path):
        raise refuse_pickle(path)
    return GGUFCheckpoint(path)


def _starts_with_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
