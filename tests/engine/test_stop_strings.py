from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.engine.stop_strings import StopStrings


def feed(stops: tuple[str, ...], pieces: list[str]) -> tuple[list[str], str | None]:
    found = StopStrings(stops)
    shown = [found.push(piece) for piece in pieces]
    return [*shown, found.finish()], found.matched


def reference(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """The definition: read character by character; the first position where some stop string ends wins."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.parametrize(
    ("stops", "pieces", "shown", "matched"),
    [
        ((), ["any", "thing"], ["any", "thing", ""], None),
        (("END",), ["textEND more"], ["text", ""], "END"),
        (("END",), ["textE", "N", "D"], ["text", "", "", ""], "END"),
        (("END",), ["textE", "N", "X"], ["text", "", "ENX", ""], None),
        (("END",), ["textEN"], ["text", "EN"], None),  # held back, then flushed
        (("aab",), ["aaab"], ["a", ""], "aab"),
        (("abcd", "c"), ["ab", "cd"], ["", "ab", ""], "c"),  # complete first, however it was cut
        (("abcd", "c"), ["abcd"], ["ab", ""], "c"),
        (("bc", "abc"), ["xabc"], ["x", ""], "abc"),  # together: the longest
        (("\n\n",), ["a\n", "b\n", "\nc"], ["a", "\nb", "", ""], "\n\n"),
    ],
)
def test_table(stops: tuple[str, ...], pieces: list[str], shown: list[str], matched: str | None) -> None:
    assert feed(stops, pieces) == (shown, matched)


@given(
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    pieces=st.lists(st.text("abc", max_size=5), max_size=12),
)
def test_cutting_does_not_matter_and_nothing_leaks(stops: list[str], pieces: list[str]) -> None:
    shown, matched = feed(tuple(stops), pieces)
    assert ("".join(shown), matched) == reference(tuple(stops), "".join(pieces))
    # at no time had more been shown than the answer holds
    assert reference(tuple(stops), "".join(pieces))[0].startswith("".join(shown[:-1]))


def test_text_that_cannot_match_is_not_held() -> None:
    found = StopStrings(("stop",))
    assert found.push("no match here") == "no match here"
    assert found.push(" sto") == " "
    assert found.push("ry") == "story"


@given(st.text("abc", max_size=12), st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_a_shown_match_ends_the_text(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    found = StopStrings(tuple(stops), show_match=True)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown = "".join([*(found.push(piece) for piece in pieces), found.finish()])
    hidden, matched = reference(tuple(stops), text)
    assert (shown, found.matched) == (hidden + (matched or ""), matched)
