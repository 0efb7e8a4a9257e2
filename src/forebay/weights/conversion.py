"""`model.weights`: which matrix is kept as stored, which is made into another format when it is loaded, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from forebay.errors import ModelFormatError
from forebay.ops.tensor import BytesArray, Format, Tensor
from forebay.weights.formats import FORMATS, BlockFormat
from forebay.weights.mapped import drop_pages
from forebay.weights.quantize import GROUP, METHOD, quantize

STORED, AUTO = "stored", "auto"
# asked -> (format of matrices, format of the embedding and the head)
_WANTED = {"int8": ("q8_0", "q8_0"), "int4": ("q4_1", "q8_0"), "bf16": ("bf16", "bf16"), "f32": ("f32", "f32")}
_CHUNK = 1 << 16  # values made at a time: the arrays that quantizing them needs stay small; threads make it no faster
_ROOM = 8 * 4 * _CHUNK  # bytes of the arrays that live at the same time, about


class ConvertedTensor(Tensor):
    """A tensor in another format than it is stored in. Its bytes are made when first asked for, and kept until
    `release`; the pages of the file that were read for them are let go at once."""

    __slots__ = ("_made", "_source")
    _made: BytesArray | None
    _source: Tensor

    def __init__(self, source: Tensor, target: BlockFormat) -> None:
        shape = {"name": source.name, "format": target, "rows": source.rows, "columns": source.columns}
        for name, value in {**shape, "_source": source, "_made": None}.items():
            object.__setattr__(self, name, value)

    @property
    def data(self) -> BytesArray:
        """(rows, bytes per row) uint8. ModelFormatError where a value has no place in the format."""
        made = self._made
        if made is None:
            made = self._make()
            object.__setattr__(self, "_made", made)
        return made

    def release(self) -> None:
        object.__setattr__(self, "_made", None)

    def _make(self) -> BytesArray:
        source = self._source
        out = np.empty((self.rows, self.nbytes // self.rows), np.uint8)
        np.empty(_ROOM, np.uint8)  # freed at once: glibc then reuses pages for arrays up to this size, 1.7 x as fast
        step = max(1, _CHUNK // self.columns)
        try:
            for start in range(0, self.rows, step):
                part = slice(start, start + step)
                values = source.format.dequantize(source.data[part], self.columns)
                out[part] = quantize(values, self.format.name)
        except ValueError as error:
            raise ModelFormatError(
                f"{self.name} {error}; serve it with model.weights = {STORED}", param="model.weights"
            ) from None
        drop_pages(source.data)
        return out


class Conversion:
    """What `model.weights` asks for: hand every matrix to `matrix`, then ask for the `reason`."""

    def __init__(self, asked: str) -> None:
        """asked: "stored", "auto" (the same), "int8", "int4", "bf16" or "f32"."""
        self._asked = asked
        self._counts: Counter[str] = Counter()
        self._stored: Counter[str] = Counter()
        self._converted = False
        self._made_floats = False

    def matrix(self, stored: Tensor, *, outer: bool) -> Tensor:
        """The matrix to serve; nothing is computed yet. outer: it is the embedding or the head."""
        target, what = decide(self._asked, stored.format, stored.columns, outer=outer)
        self._stored[stored.format.name] += 1
        self._counts[what] += 1
        if target is None:
            return stored
        self._converted = True
        self._made_floats |= stored.format.quantized and not target.quantized
        return ConvertedTensor(stored, target)

    def reason(self) -> str:
        """What was done and why, in one line."""
        return "; ".join(self._reasons())

    def _reasons(self) -> Iterator[str]:
        if self._asked in (AUTO, STORED):
            yield f"as in the file: {joined(self._stored)}"
            if self._asked == AUTO and not any(FORMATS[name].quantized for name in self._stored):
                yield "auto never changes a model's answers; int8 and int4 take less memory and time"
            return
        for what, count in self._counts.most_common():
            yield f"{count} {'matrix' if count == 1 else 'matrices'} {what}"
        if self._converted:
            yield f"converted when loaded (method {METHOD})"
        if self._made_floats:
            yield "floats made of quantized values are no more exact than those"


def decide(asked: str, stored: Format, columns: int, *, outer: bool) -> tuple[BlockFormat | None, str]:
    """The rule for one matrix: (its new format, or None to keep it as it is stored; what becomes of it, in words).

    int8 and int4 convert only what then takes fewer bits: quantizing again what has no more bits than asked for would
    lose accuracy and gain nothing. Under int4 the embedding and the head keep 8 bits, since their errors reach every
    token unfiltered. bf16 and f32 convert everything else to that type.
    """
    if asked in (AUTO, STORED):
        return None, f"{stored.name} as stored"
    target = FORMATS[_WANTED[asked][outer]]
    if stored.name == target.name:
        return None, f"{stored.name} as stored"
    if target.quantized:
        if bits(stored) <= bits(target):
            return None, f"{stored.name} as stored (no more bits than {target.name})"
        if columns % GROUP:
            return None, f"{stored.name} as stored ({columns} columns are not a multiple of {GROUP})"
    part = " (embedding and head keep 8 bits)" if asked == "int4" and outer else ""
    return target, f"{stored.name} to {target.name}{part}"


def bits(fmt: Format) -> float:
    """Bits per value, scales included."""
    return fmt.block_bytes * 8 / fmt.block_size


def format_label(tensor: Tensor) -> str:
    """The format for the answer class: its name, and whose bits they are if they are not the file's."""
    made = isinstance(tensor, ConvertedTensor)
    return f"{tensor.format.name}:forebay-{METHOD}" if made else tensor.format.name


def joined(names: Counter[str]) -> str:
    """Names with a plus between them, most frequent first."""
    return "+".join(sorted(names, key=lambda name: (-names[name], name)))
