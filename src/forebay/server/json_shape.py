"""What a JSON body may be made of, found before it is parsed: the parser holds the interpreter until it is done, and
with it every other request of the server. Time and memory here are linear, in small pieces."""

from __future__ import annotations

from itertools import accumulate

from forebay.errors import RequestError

MAX_NESTING = 64  # arrays and objects inside each other; a JSON schema of 20 nested objects has 45
MAX_CONTAINERS = 2**15  # arrays and objects; one of each message, and the most expensive
MAX_STRINGS = 2**17  # names of fields too: a message has four
MAX_VALUES = 2**20  # commas, and backslashes in strings; a prompt of token ids has a comma for each

_PIECE = 2**16  # bytes looked at in one go
_TO_STEP = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level down, one level up
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")


def check_shape(body: bytes) -> None:
    """Raises RequestError for JSON over one of the limits. Other faults are the parser's to find; up to the first of
    them it sees what was counted here."""
    depth = brackets = quotes = values = start = 0
    in_string = False
    while start < len(body):
        piece = _piece(body, start)
        start += len(piece)
        parts = piece.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[in_string::2])
        in_string ^= len(parts) % 2 == 0
        steps = memoryview(outside.translate(_TO_STEP, _NOT_BRACKETS)).cast("b")
        if max(accumulate(steps, initial=depth)) > MAX_NESTING:
            raise RequestError(f"the body nests JSON too deeply: at most {MAX_NESTING} levels; flatten it")
        depth += sum(steps)
        brackets += len(steps)
        quotes += len(parts) - 1
        values += outside.count(b",") + piece.count(b"\\")
        if brackets > 2 * MAX_CONTAINERS or quotes > 2 * MAX_STRINGS or values > MAX_VALUES:
            raise RequestError(
                f"the body has too many JSON values: at most {MAX_CONTAINERS} arrays and objects, {MAX_STRINGS} "
                f"strings and {MAX_VALUES} values or escapes; send several requests"
            )


def _piece(body: bytes, start: int) -> bytes:
    """The next bytes; what escapes a character stays together with it."""
    piece = body[start : start + _PIECE]
    backslashes = len(piece) - len(piece.rstrip(b"\\"))
    return piece[:-1] if backslashes % 2 and start + _PIECE < len(body) else piece
