from __future__ import annotations

import pytest

from forebay.structured.reasoning_tokens import ReasoningTokens


def count(*pieces: bytes, inside: bool = False, cuts: bool = True) -> int:
    one, other = (ReasoningTokens("<t>", "</t>", inside=inside, token_bytes=pieces.__getitem__) for _ in range(2))
    one.push(range(len(pieces)))
    for i in range(len(pieces)):
        other.push([i])
    assert one.count == other.count
    return one.count


@pytest.mark.parametrize(
    ("pieces", "inside", "tokens"),
    [
        ([b"<t>", b"a", b"b", b"</t>", b"c"], False, 4),
        ([b" ", b"\n<", b"t>a", b"b</", b"t>c", b"d"], False, 5),
        ([b"a", b"</t", b">", b"c"], True, 3),
        ([b"<t>", b"a", b"</t>", b"c"], True, 3),
        ([b"a", b"<t>", b"b", b"</t>"], False, 0),
        ([b"<tea>", b"b", b"</t>"], False, 0),
        ([b"<t></t>", b"a"], False, 1),
        ([b"<t>", b"never", b" closed"], False, 3),
        ([b"</t>", b"a"], True, 1),
        ([], False, 0),
    ],
)
def test_tokens_up_to_the_end_marker(pieces: list[bytes], inside: bool, tokens: int) -> None:
    assert count(*pieces, inside=inside) == tokens
