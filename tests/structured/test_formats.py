"""Formats allow only what their standards allow, by an independent reading of each."""

from __future__ import annotations

import datetime
import ipaddress
import random
import re
import uuid
from collections.abc import Callable

import pytest

from forebay.structured.json_schema.formats import FORMATS
from tests.structured.support import accepts, compiled_schema, generate


def fullmatch(name: str, text: str) -> bool:
    return re.fullmatch(FORMATS[name], text) is not None


def test_every_day_of_the_calendar_and_no_other() -> None:
    for year in (1900, 1999, 2000, 2023, 2024, 2100, 2400):
        for month in range(14):
            for day in range(33):
                text = f"{year:04}-{month:02}-{day:02}"
                try:
                    datetime.date(year, month, day)
                    real = True
                except ValueError:
                    real = False
                assert fullmatch("date", text) == real, text


def is_time(text: str) -> None:
    datetime.time.fromisoformat(text.upper().replace("Z", "+00:00"))


def is_date_time(text: str) -> None:
    date, _, time = text.upper().partition("T")
    datetime.date(*map(int, date.replace("0000", "0400", 1).split("-")))  # year 0 is a leap year Python does not have
    is_time(time)


def is_hostname(text: str) -> None:
    assert len(text) <= 253
    for label in text.split("."):
        assert 1 <= len(label) <= 63
        assert label[0] != "-" != label[-1]
        assert label[2:4] != "--"


def is_email(text: str) -> None:
    local, _, domain = text.rpartition("@")
    assert 1 <= len(local) <= 64
    if domain.startswith("["):
        ipaddress.IPv4Address(domain[1:-1])
    else:
        is_hostname(domain)


READERS: dict[str, Callable[[str], object]] = {
    "date-time": is_date_time,
    "time": is_time,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": uuid.UUID,
}


@pytest.mark.parametrize("name", sorted(READERS))
def test_what_the_grammar_writes_can_be_read(name: str) -> None:
    grammar = compiled_schema({"type": "string", "format": name})
    rng = random.Random(name)
    written = [generate(grammar.matcher(), rng) for _ in range(60)]
    texts = [data.decode()[1:-1] for data in written if data is not None]
    assert len(texts) >= 10
    for text in texts:
        READERS[name](re.sub(r"(\.\d{6})\d+", r"\1", text))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("time", ["23:59:59Z", "00:00:00.5+23:59"], ["24:00:00Z", "23:59:60Z", "12:00:00"]),
        ("date-time", ["2024-02-29T00:00:00z"], ["2023-02-29T00:00:00Z", "2024-02-29 00:00:00Z"]),
        ("duration", ["P1Y2M3D", "PT1H", "P4W", "P1DT12H"], ["P", "PT", "P1Y1W", "1D", "P1H", "P1Y3D"]),
        ("email", ["a@b", "x.y.z@example.com", "u@[1.2.3.4]"], ["@b", "a@", ".a@b", "a..b@c", "a@b..c", "a@-b"]),
        ("hostname", ["a", "xn.com", "a-b.c1"], ["", "-a", "a-", "a..b", "xn--a", "a_b", "a.", "x" * 64]),
        ("ipv4", ["0.0.0.0", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
        ("ipv6",
            ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "::1.2.3.4",
                "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5::1.2.3.4"],
                    ["1:2:3:4:5:6::1.2.3.4", "::1.2.3.256", ":", ":::", "1::2::3", "1:2:3:4:5:6:7:8::"]),
        ("uri", ["a:", "http://h/p?q#f", "urn:x:y", "http://u:p@[::1]:80/"],
            ["", "/p", "a b:c", "http://[::1", "a:%zz", "http://a b"]),
        ("uuid", ["01234567-89ab-cdef-0123-456789ABCDEF"],
            ["0123456789abcdef0123456789abcdef", "g1234567-89ab-cdef-0123-456789abcdef"]),
    ],
)  # fmt: skip
def test_known_texts(name: str, good: list[str], bad: list[str]) -> None:
    grammar = compiled_schema({"type": "string", "format": name})
    assert [t for t in good if not fullmatch(name, t) or not accepts(grammar, f'"{t}"')] == []
    assert [t for t in bad if fullmatch(name, t) or accepts(grammar, f'"{t}"')] == []


def test_lengths_are_bounded_where_the_standard_bounds_them() -> None:
    grammar = compiled_schema({"type": "string", "format": "hostname"})
    label = "a" * 63
    assert accepts(grammar, f'"{label}.{label}.{label}.{"a" * 61}"')
    assert not accepts(grammar, f'"{label}.{label}.{label}.{"a" * 62}"')
