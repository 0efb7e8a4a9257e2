"""Patterns mean the same after they are written anew for a Rust engine."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.structured.limits import GrammarLimits
from forebay.structured.refusal import Refusal
from forebay.structured.regex import literal_pattern, search_pattern, whole_pattern
from tests.structured.support import accepts, compiled, compiled_schema

ALPHABET = "ab-]^ \n\r\u2028é😀"

# pattern, texts it is found in, texts it is not found in: where Rust, Python and ECMA-262 differ, by ECMA-262
DIALECT = [
    ("^.$", ["a", "é", "😀", "\v"], ["", "\n", "\r", "\u2028", "\u2029"]),
    (r"^\s$", [" ", "\t", "\ufeff", "\u00a0", "\u2003"], ["\u0085", "\u180e", "x"]),
    (r"^\S$", ["x", "\u0085"], ["\ufeff", " "]),
    (r"^\d+$", ["09"], ["٣", "x"]),
    (r"^\w$", ["a", "_"], ["é", "-"]),
    (r"^\W$", ["é", "-", "٣"], ["a"]),
    (r"^[\s\S]$", ["\n", "x"], ["", "xx"]),
    (r"^[a[b]]$", ["a]", "[]", "b]"], ["a", "b"]),
    (r"^[a&&b]$", ["&", "a", "b"], ["&&", ""]),
    (r"^[+--c~~]$", ["~", "+", ",", "-", "c"], ["d", "~~", "*"]),
    (r"^\<a\>$", ["<a>"], ["a"]),
    (r"^[\w-.]+$", ["a-.b"], ["/"]),
    (r"^[^]$", ["\n", "x"], [""]),
    (r"^[\b]$", ["\b"], ["b"]),
    (r"^a{,2}$", ["a{,2}"], ["", "aa"]),
    (r"^{x}$", ["{x}"], ["x"]),
    (r"^\{a\}\/\-\_$", ["{a}/-_"], []),
    (r"^\u0041\x42\cJ$", ["AB\n"], ["AB"]),
    (r"^a[\0é]b|[^\x01-\u{10fffe}]$", ["aéb", "\U0010ffff"], ["ab", "", "b"]),  # the class is what it is without NUL
    (r"^\u{1F600}\ud83d\ude00$", ["😀😀"], []),
    (r"^\p{Lu}\P{Lu}$", ["Éa"], ["aa", "AA"]),
    ("a$", ["ba", "a"], ["a\n", "ab"]),
    ("^$|^x", ["", "xy"], ["y", "yx"]),
    ("(^a|b$)", ["ac", "cb"], ["ca", "bc"]),
    ("^(?<year>[0-9]{4})$", ["2026"], ["202"]),
    ("a*?b+?", ["b", "aab"], ["a"]),
    ('^a"b\\\\c$', ['a"b\\c'], ["ab"]),
    ("", ["", "x"], []),
]
REFUSED = [
    "[]a]", r"(?=a)b", r"(?<!a)b", r"(?i)a", r"(?P<x>a)", r"(a)\1", r"\bword", r"\k<x>", r"\Aa\z", "a**", "*a",
    "a(b", "a)b", "[a", "[b-a]", r"[a-\d]", "a^b", "(a$)b", "^*", r"\u", r"\xZZ", r"\ud800", r"\p{Greek}", "\\",
    "a{2,1}", "a{999999}", "((a{100}){100}){100}", "(" * 40 + ")" * 40, "x" * 5000,
    r"^\0$", r"a\x0bb", r"[\0-\x05]", r"[^\x01-\u{10ffff}]", r"[^\p{L}\x01-\u{10ffff}]", r"(\x7f)?",
]  # fmt: skip


def python_form(pattern: str) -> str:
    return re.sub(r"\\x\{([0-9a-f]+)\}", lambda m: f"\\U{int(m[1], 16):08x}", pattern)


@pytest.mark.parametrize(("pattern", "found", "missing"), DIALECT)
def test_means_what_ecma_262_says(pattern: str, found: list[str], missing: list[str]) -> None:
    grammar = compiled_schema({"type": "string", "pattern": pattern})
    quoted = {text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in found + missing}
    for raw, escaped in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\b", "\\b")):
        quoted = {text: form.replace(raw, escaped) for text, form in quoted.items()}
    spellable = [t for t in found if not re.search("[\0\v\x7f]", t)]  # control characters without a short escape
    assert [t for t in spellable if not accepts(grammar, quoted[t])] == []
    assert [t for t in missing if accepts(grammar, quoted[t])] == []


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda p: p[:12])
def test_refuses_what_it_cannot_carry_over(pattern: str) -> None:
    with pytest.raises(Refusal, match=r"pattern|repetitions|characters|groups"):
        search_pattern(pattern)


@pytest.mark.parametrize("code", [*range(0x20), 0x7F])
def test_no_pattern_loses_a_control_character(code: int) -> None:
    """Where a string cannot hold it, the pattern is refused; the backend by itself would pass over it."""
    spelled = f"^a\\x{code:02x}b$"
    if chr(code) in "\b\f\n\r\t":
        assert not accepts(compiled_schema({"type": "string", "pattern": spelled}), '"ab"')
    else:
        with pytest.raises(Refusal, match="control character"):
            search_pattern(spelled)
        assert accepts(compiled("regex", f"a\\x{code:02x}b"), f"a{chr(code)}b")  # text that is no JSON holds it


def patterns(*, edges: bool = True) -> st.SearchStrategy[str]:
    chars = st.sampled_from(
        ["a", "b", "-", r"\]", r"\^", " ", r"\n", r"\r", "é", "😀", "[ab]", "[^a]", r"[^\n\]]", "[a-é]"]
    )
    quantified = st.tuples(chars, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{2,}", "+?"])).map("".join)

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        many = st.lists(inner, min_size=0, max_size=3)
        grouped = st.tuples(many.map("|".join), st.sampled_from(["", "*", "?", "{2}"])).map(
            lambda t: f"(?:{t[0]}){t[1]}"
        )
        return st.one_of(many.map("".join), grouped)

    body = st.recursive(quantified, grown, max_leaves=6)
    sides = (["", "^"], ["", r"\Z"]) if edges else ([""], [""])
    edged = st.tuples(st.sampled_from(sides[0]), body, st.sampled_from(sides[1])).map("".join)
    return st.lists(edged, min_size=1, max_size=2).map("|".join)


@settings(max_examples=300, deadline=None)
@given(patterns(), st.lists(st.text(ALPHABET, max_size=6), min_size=1, max_size=20))
def test_finds_what_a_search_finds(pattern: str, texts: list[str]) -> None:
    """Python's own search, whose $ is \\Z here; what is written anew must match from end to end instead."""
    written = re.compile(python_form(search_pattern(pattern.replace(r"\Z", "$"))))
    wanted = re.compile(pattern)
    for text in texts:
        assert bool(written.fullmatch(text)) == bool(wanted.search(text)), (pattern, text)


@settings(max_examples=100, deadline=None)
@given(patterns(edges=False), st.lists(st.text("ab- é", max_size=5), min_size=1, max_size=8))
def test_a_regex_output_matches_from_end_to_end(pattern: str, texts: list[str]) -> None:
    grammar = compiled("regex", pattern)
    for text in texts:
        assert accepts(grammar, text) == bool(re.fullmatch(pattern, text)), (pattern, text)


def test_literals_are_themselves() -> None:
    text = r'a.b*c/d\e"f[g]{h}(i)|j^k$ é😀'
    assert accepts(compiled("regex", "".join("\\" + c if c in r".*/\[]{}()|^$" else c for c in text)), text)
    assert re.fullmatch(python_form(literal_pattern(text)), text)


def test_the_form_a_backend_gets_is_plain_ascii() -> None:
    for pattern, *_ in DIALECT:
        assert search_pattern(pattern).isascii()
        assert "/" not in whole_pattern(pattern)


def test_limits_are_of_the_caller() -> None:
    with pytest.raises(Refusal, match="3 are allowed"):
        search_pattern("abcd", GrammarLimits(max_regex_chars=3))
