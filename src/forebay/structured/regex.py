"""Patterns of ECMA-262, rewritten so that a Rust regex engine matches the very same strings.

The dialects look alike and differ in silence: `.` and `\\s` take other characters, `[a[b]]` and `&&` mean something
else in a class, `\\<` and `\\A` are anchors in one and letters in the other. So a pattern is parsed here by the rules
of ECMA-262 (15th edition, 22.2.1, with the u flag's code points and what Annex B adds), and written anew from what it
means, each character by number. What has no equal there, such as look-around and back references, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forebay.structured.limits import DEFAULT_LIMITS, GrammarLimits
from forebay.structured.refusal import Refusal, shown

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included, ascending and apart

_LAST: Final = 0x10FFFF
_LINE_ENDS: Final[Ranges] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_SETS: Final[dict[str, Ranges]] = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": (
        (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
        (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
    ),
}  # fmt: skip
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_CATEGORIES: Final = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
    ]
)
# What a string of JSON holds only as \\u escapes, which are not written (docs/structured.md), and DEL, which the
# backend omits.
_NO_JSON: Final[Ranges] = ((0x00, 0x07), (0x0B, 0x0B), (0x0E, 0x1F), (0x7F, 0x7F))
_QUANTIFIER: Final = re.compile(r"[*+?]|\{([0-9]+)(?:(,)([0-9]*))?\}")
_BOUNDS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class _Chars:
    """One character out of a set: ranges of code points, and Unicode categories as a class spells them."""

    ranges: Ranges
    categories: tuple[str, ...] = ()
    negated: bool = False

    def text(self) -> str:
        return f"[{'^' if self.negated else ''}{''.join(_items(self.ranges))}{''.join(self.categories)}]"

    def in_json(self) -> _Chars:
        """Without what strings of JSON cannot hold here; the backend passes over such a character where it is alone."""
        if self.negated:
            return _Chars(_merged((*self.ranges, *_NO_JSON)), self.categories, negated=True)
        return _Chars(_merged(self.ranges, without=_NO_JSON), self.categories)

    def is_empty(self) -> bool:
        return self.ranges == ((0, _LAST),) if self.negated else not self.ranges and not self.categories


@dataclass(frozen=True, slots=True)
class _Anchor:
    end: bool


@dataclass(frozen=True, slots=True)
class _Group:
    alternatives: tuple[tuple[_Node, ...], ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    node: _Chars | _Group
    low: int
    high: int | None


_Node = _Chars | _Anchor | _Group | _Repeat


def _item(low: int, high: int) -> str:
    return f"\\x{{{low:x}}}" if low == high else f"\\x{{{low:x}}}-\\x{{{high:x}}}"


def _items(ranges: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(_item(low, high) for low, high in ranges)


def _complement(ranges: Ranges) -> Ranges:
    edges = [-1, *(edge for pair in ranges for edge in pair), _LAST + 1]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low + 1, high - 1) for low, high in pairs if low + 1 <= high - 1)


def _merged(ranges: Iterable[tuple[int, int]], without: Ranges = ()) -> Ranges:
    """Ascending and apart, less those of `without`."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            low, high = found[-1][0], max(high, found.pop()[1])
        found.append((low, high))
    for low, high in without:
        found = [
            part
            for start, end in found
            for part in ((start, min(end, low - 1)), (max(start, high + 1), end))
            if part[0] <= part[1]
        ]
    return tuple(found)


_ANY: Final = _Chars(((0, _LAST),))
_DOT: Final = _Chars(_complement(_LINE_ENDS))


def search_pattern(pattern: str, limits: GrammarLimits = DEFAULT_LIMITS) -> str:
    """A pattern, between ^ and $, for the strings in which `pattern` is found somewhere, as in JSON Schema."""
    return f"^(?:{_written(pattern, limits, search=True)})$"


def whole_pattern(pattern: str, limits: GrammarLimits = DEFAULT_LIMITS) -> str:
    """A pattern, without anchors, for the strings that `pattern` matches from end to end."""
    return f"(?:{_written(pattern, limits, search=False)})"


def literal_pattern(text: str) -> str:
    """A pattern for this text alone."""
    return "".join(map(_written_char, text))


def unwritable(text: str) -> str | None:
    """The first character that no string of JSON holds here, None where there is none."""
    return next((char for char in text if any(low <= ord(char) <= high for low, high in _NO_JSON)), None)


def _written_char(char: str) -> str:
    return char if char.isascii() and char.isalnum() else _item(ord(char), ord(char))


def _written(pattern: str, limits: GrammarLimits, *, search: bool) -> str:
    tree = _Parser(pattern, limits).parse()
    if _size(tree) > limits.max_regex_size:
        raise Refusal(f"the pattern's repetitions come to more than {limits.max_regex_size} characters")
    return "|".join(_branch(nodes, search) for nodes in _branches(tree))


def _size(node: _Node) -> int:
    """Characters, each counted as often as it may be repeated, up to the least number where there is no most."""
    if isinstance(node, _Repeat):
        return max(1, node.low if node.high is None else node.high) * _size(node.node)
    if isinstance(node, _Group):
        return sum(_size(part) for nodes in node.alternatives for part in nodes)
    return 1


def _branches(group: _Group) -> Iterator[Sequence[_Node]]:
    """The alternatives of a pattern, those of a group that is all of an alternative among them."""
    for nodes in group.alternatives:
        if len(nodes) == 1 and isinstance(nodes[0], _Group):
            yield from _branches(nodes[0])
        else:
            yield nodes


def _branch(nodes: Sequence[_Node], search: bool) -> str:
    """An alternative without the anchors at its ends; where one is missing, a search lets anything stand there."""
    first, last = 0, len(nodes)
    while first < last and nodes[first] == _Anchor(end=False):
        first += 1
    while last > first and nodes[last - 1] == _Anchor(end=True):
        last -= 1
    body = "".join(_text(node, search) for node in nodes[first:last])
    anything = f"{_ANY.text()}*" if search else ""
    return ("" if first else anything) + body + ("" if last < len(nodes) else anything)


def _text(node: _Node, search: bool) -> str:
    if isinstance(node, _Chars):
        chars = node.in_json() if search else node
        if chars.is_empty():
            raise Refusal(
                "the pattern needs a control character, which strings cannot hold here: there is no \\u escape"
            )
        return chars.text()
    if isinstance(node, _Repeat):
        return f"{_text(node.node, search)}{{{node.low},{'' if node.high is None else node.high}}}"
    if isinstance(node, _Group):
        return f"(?:{'|'.join(''.join(_text(part, search) for part in nodes) for nodes in node.alternatives)})"
    raise Refusal(f"{'$' if node.end else '^'} inside a pattern; put it at the end of the pattern or of an alternative")


class _Parser:
    """Recursive descent over ECMA-262's Disjunction."""

    def __init__(self, pattern: str, limits: GrammarLimits) -> None:
        if len(pattern) > limits.max_regex_chars:
            raise Refusal(f"the pattern has {len(pattern)} characters; {limits.max_regex_chars} are allowed")
        self._text = pattern
        self._limits = limits
        self._pos = 0

    def parse(self) -> _Group:
        tree = self._disjunction(0)
        if self._pos < len(self._text):
            raise self._refusal("a ) without its (")
        return tree

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(f"{reason} (character {self._pos + 1} of the pattern {shown(self._text)!r})")

    def _peek(self, length: int = 1) -> str:
        return self._text[self._pos : self._pos + length]

    def _take(self, token: str) -> bool:
        found = self._text.startswith(token, self._pos)
        self._pos += len(token) if found else 0
        return found

    def _disjunction(self, depth: int) -> _Group:
        if depth > self._limits.max_regex_depth:
            raise self._refusal(f"groups more than {self._limits.max_regex_depth} deep")
        alternatives: list[tuple[_Node, ...]] = []
        nodes: list[_Node] = []
        while self._pos < len(self._text) and self._peek() != ")":
            if self._take("|"):
                alternatives.append(tuple(nodes))
                nodes = []
            else:
                nodes.append(self._term(depth))
        return _Group((*alternatives, tuple(nodes)))

    def _term(self, depth: int) -> _Node:
        if self._peek() in "^$":
            anchor = _Anchor(end=self._peek() == "$")
            self._pos += 1
            if _QUANTIFIER.match(self._text, self._pos):
                raise self._refusal("an anchor cannot be repeated")
            return anchor
        if _QUANTIFIER.match(self._text, self._pos):
            raise self._refusal("nothing to repeat")
        return self._repeated(self._atom(depth))

    def _repeated(self, node: _Chars | _Group) -> _Node:
        found = _QUANTIFIER.match(self._text, self._pos)
        if not found:
            return node
        low, high = _BOUNDS.get(found[0], (0, 0))
        if found[1]:
            low = int(found[1])
            high = low if not found[2] else int(found[3]) if found[3] else None
        if max(low, high or 0) > self._limits.max_count or (high is not None and low > high):
            raise self._refusal(f"repetitions must be {self._limits.max_count} at most, and in order")
        self._pos = found.end()
        self._take("?")  # lazy or greedy, the same strings match
        return _Repeat(node, low, high)

    def _atom(self, depth: int) -> _Chars | _Group:
        if self._take("("):
            return self._group(depth)
        if self._take("["):
            return self._class()
        if self._take("."):
            return _DOT
        if self._peek() == "\\":
            code = self._escape(in_class=False)
            return code if isinstance(code, _Chars) else _Chars(((code, code),))
        code = self._code_point()
        return _Chars(((code, code),))

    def _code_point(self) -> int:
        code = ord(self._peek())
        if 0xD800 <= code <= 0xDFFF:
            raise self._refusal("half a surrogate pair is not a character")
        self._pos += 1
        return code

    def _group(self, depth: int) -> _Group:
        if self._take("?") and not self._take(":"):
            named = re.compile(r"<[A-Za-z_$][\w$]*>", re.ASCII).match(self._text, self._pos)
            if not named:
                raise self._refusal("look-around and flags in a group are not supported")
            self._pos = named.end()
        group = self._disjunction(depth + 1)
        if not self._take(")"):
            raise self._refusal("a ( without its )")
        return group

    def _class(self) -> _Chars:
        negated = self._take("^")
        items: list[_Chars] = []
        while not self._take("]"):
            if self._pos >= len(self._text):
                raise self._refusal("a [ without its ]")
            items.append(self._class_item())
        if not items:
            if negated:
                return _ANY
            raise self._refusal("[] matches nothing")
        ranges = tuple(pair for item in items for pair in item.ranges)
        return _Chars(ranges, tuple(name for item in items for name in item.categories), negated)

    def _class_item(self) -> _Chars:
        low = self._class_atom()
        if isinstance(low, _Chars):
            return low
        if self._peek() != "-" or self._peek(2) in ("-", "-]"):
            return _Chars(((low, low),))
        self._pos += 1
        high = self._class_atom()
        if isinstance(high, _Chars) or high < low:
            raise self._refusal("a range in a class must go from a character up to a character")
        return _Chars(((low, high),))

    def _class_atom(self) -> _Chars | int:
        return self._escape(in_class=True) if self._peek() == "\\" else self._code_point()

    def _escape(self, *, in_class: bool) -> _Chars | int:
        self._pos += 1
        char = self._peek()
        if char.lower() in _SETS:
            self._pos += 1
            ranges = _SETS[char.lower()]
            return _Chars(ranges if char.islower() else _complement(ranges))
        if char in _CONTROLS:
            self._pos += 1
            return _CONTROLS[char]
        if in_class and char == "b":
            self._pos += 1
            return 0x08
        return self._category() if char in ("p", "P") else self._escaped_code()

    def _category(self) -> _Chars:
        found = re.compile(r"([pP])\{(\w+)\}").match(self._text, self._pos)
        if not found or found[2] not in _CATEGORIES:
            raise self._refusal("of \\p{...} only the short names of general categories are supported, such as \\p{Lu}")
        self._pos = found.end()
        return _Chars((), (f"\\{found[1]}{{{found[2]}}}",))

    def _escaped_code(self) -> int:
        for form in (r"x([0-9A-Fa-f]{2})", r"u([0-9A-Fa-f]{4})", r"u\{([0-9A-Fa-f]{1,6})\}"):
            found = re.compile(form).match(self._text, self._pos)
            if found:
                self._pos = found.end()
                return self._scalar(int(found[1], 16))
        control = re.compile(r"c([A-Za-z])|0(?![0-9])").match(self._text, self._pos)
        if control:
            self._pos = control.end()
            return ord(control[1]) % 32 if control[1] else 0
        if not self._peek() or (self._peek().isascii() and self._peek().isalnum()):
            raise self._refusal("this escape is not supported (back references and word boundaries are not)")
        return self._code_point()

    def _scalar(self, code: int) -> int:
        """A code point from its number; two escaped halves of a surrogate pair are one."""
        low = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})").match(self._text, self._pos)
        if 0xD800 <= code <= 0xDBFF and low:
            self._pos = low.end()
            return 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        if code > _LAST or 0xD800 <= code <= 0xDFFF:
            raise self._refusal("half a surrogate pair is not a character")
        return code
