"""Typed reading of a model's configuration, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from forebay.errors import ModelFormatError

T = TypeVar("T", int, float, bool, str)

_MISSING = object()
_MAX_SIZE = 1 << 31
_MAX_LAYERS = 1 << 12


@dataclass(frozen=True, slots=True)
class Fields:
    """A configuration mapping: Hugging Face `config.json`, or GGUF metadata below `prefix` ("llama.")."""

    values: Mapping[str, Any]
    origin: str
    prefix: str = ""

    def has(self, name: str) -> bool:
        return self.values.get(self.prefix + name) is not None

    def size(self, name: str, default: int | None = None) -> int:
        """A positive integer (also where a GGUF stores it as a one-element or constant array)."""
        value = self._constant(name, _MISSING if default is None else default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MAX_SIZE:
            raise self._wrong(name, "a positive integer", value)
        return value

    def layers(self, name: str) -> int:
        """A number of layers; bounded, for a description of each is made before its tensors are looked for."""
        count = self.size(name)
        if count > _MAX_LAYERS:
            raise self._wrong(name, f"at most {_MAX_LAYERS}", count)
        return count

    def number(self, name: str, default: float | None = None) -> float:
        value = self._constant(name, _MISSING if default is None else default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise self._wrong(name, "a finite number", value)
        return float(value)

    def positive(self, name: str, default: float) -> float:
        value = self.number(name, default)
        if value <= 0.0:
            raise self._wrong(name, "a number above 0", value)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def text(self, name: str, default: str) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a string", value)
        return value

    def table(self, name: str) -> Fields | None:
        """A nested mapping, or None where it is absent or null."""
        value = self._get(name, None)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object", value)
        return Fields(value, f"{self.origin} {name}")

    def texts(self, name: str) -> tuple[str, ...] | None:
        value = self._get(name, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, "a list of strings", value)
        return tuple(value)

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(self.prefix + name)
        if value is None:
            value = default
        if value is _MISSING:
            raise ModelFormatError(f"{self.origin}: {self.prefix}{name} is missing; the model's files are incomplete")
        return value

    def _constant(self, name: str, default: Any) -> Any:
        value = self._get(name, default)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            return value[0]
        return value

    def _wrong(self, name: str, wanted: str, value: object) -> ModelFormatError:
        return ModelFormatError(f"{self.origin}: {self.prefix}{name} must be {wanted}, got {repr(value)[:60]}")
