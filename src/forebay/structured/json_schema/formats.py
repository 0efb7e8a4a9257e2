"""Patterns for the values of `format`, each matching only texts that its standard allows.

A pattern may be narrower than its standard (it says where), never wider. Written in ECMA-262 without anchors.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from forebay.structured.limits import GrammarLimits
from forebay.structured.regex import search_pattern

_LONG, _SHORT = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])", "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_MONTH_DAY = f"(?:{_LONG}|{_SHORT}|02-(?:0[1-9]|1[0-9]|2[0-8]))"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = f"(?:[0-9]{{4}}-{_MONTH_DAY}|{_LEAP_YEAR}-02-29)"
# RFC 3339, 5.6; without leap seconds, which are right at a few moments only
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"

# RFC 3339, appendix A
_CLOCK = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = f"P(?:{_DAYS}(?:{_CLOCK})?|{_CLOCK}|[0-9]+W)"

# RFC 1123, 2.1 and RFC 5890, 2.3.1: no hyphens in the third and fourth place, where IDNA keeps its prefixes
_A, _H = "[A-Za-z0-9]", "[A-Za-z0-9-]"
_LABEL = f"{_A}(?:{_A}|{_H}{_A}|{_H}{{2}}{_A}|{_H}(?:{_A}{_H}|-{_A}){_H}{{0,58}}{_A})?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"

# RFC 5321, 4.1.2, Mailbox: a local part of up to three atoms, an address literal of IPv4 only
_ATEXT = r"[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~]"
_TWO, _THREE = rf"{_ATEXT}{{1,31}}\.{_ATEXT}{{1,32}}", rf"{_ATEXT}{{1,20}}(?:\.{_ATEXT}{{1,20}}){{2}}"
_LOCAL = rf"{_ATEXT}{{1,64}}|{_TWO}|{_THREE}"  # of 64 characters at most
_EMAIL = rf"(?:{_LOCAL})@(?:{_HOSTNAME}|\[{_IPV4}\])"

# RFC 4291, 2.2
_H16 = "[0-9A-Fa-f]{1,4}"
_IPV6 = "|".join([
    f"(?:{_H16}:){{7}}{_H16}",
    f"(?:{_H16}:){{7}}:",
    *(f"(?:{_H16}:){{{n}}}(?::{_H16}){{1,{7 - n}}}" for n in range(1, 7)),
    *(f"(?:{_H16}:){{{n}}}:" for n in range(1, 7)),
    f":(?::{_H16}){{1,7}}",
    "::",
    f"(?:{_H16}:){{6}}{_IPV4}",
    *(f"(?:{_H16}:){{{n}}}:(?:{_H16}:){{0,{5 - n}}}{_IPV4}" for n in range(1, 6)),
    f"::(?:{_H16}:){{0,5}}{_IPV4}",
])  # fmt: skip

# RFC 6901, 3; draft-bhutton-relative-json-pointer-00, 3
_JSON_POINTER = r"(?:/(?:[^/~]|~[01])*)*"
_RELATIVE_JSON_POINTER = rf"(?:0|[1-9][0-9]*)(?:#|{_JSON_POINTER})"

# RFC 4648, 4, with padding: "byte" of OpenAPI
_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"

_UUID = "-".join(f"[0-9A-Fa-f]{{{n}}}" for n in (8, 4, 4, 4, 12))  # RFC 9562, 4

# RFC 3986, appendix A; a host is a registered name or an IP address, not of a future version
_PCT = "%[0-9A-Fa-f]{2}"
_PCHAR = rf"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|{_PCT})"
_USERINFO = rf"(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|{_PCT})*@"
_REG_NAME = rf"(?:[A-Za-z0-9\-._~!$&'()*+,;=]|{_PCT})*"
_AUTHORITY = rf"(?:{_USERINFO})?(?:\[(?:{_IPV6})\]|{_REG_NAME})(?::[0-9]*)?"
_ABSOLUTE = f"//{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
_PATHS = f"(?:{_ABSOLUTE}|{_PCHAR}+(?:/{_PCHAR}*)*|)"
_NO_COLON = _PCHAR.replace(":@", "@")  # the first part of a relative path
_RELATIVE_PATHS = f"(?:{_ABSOLUTE}|{_NO_COLON}+(?:/{_PCHAR}*)*|)"
_TAIL = rf"(?:{_PCHAR}|[/?])*"
_QUERY = rf"(?:\?{_TAIL})?(?:#{_TAIL})?"
_URI = rf"[A-Za-z][A-Za-z0-9+\-.]*:{_PATHS}{_QUERY}"
_URI_REFERENCE = f"{_URI}|{_RELATIVE_PATHS}{_QUERY}"

FORMATS: Final[dict[str, str]] = {
    "date": _DATE,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "time": _TIME,
    "duration": _DURATION,
    "email": _EMAIL,
    "hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uri-reference": _URI_REFERENCE,
    "json-pointer": _JSON_POINTER,
    "relative-json-pointer": _RELATIVE_JSON_POINTER,
    "byte": _BASE64,
    "uuid": _UUID,
}
# OpenAPI's formats of numbers, as bits of an integer. All numbers of JSON are of the last two.
NUMBER_FORMATS: Final[dict[str, int | None]] = {"int32": 32, "int64": 64, "float": None, "double": None}
_LIMITS: Final = GrammarLimits(max_regex_chars=100_000)
FORMAT_MAX_LENGTH: Final[dict[str, int]] = {"hostname": 253, "email": 254}  # RFC 1035, 2.3.4; RFC 5321, 4.5.3.1.3


@cache
def format_pattern(name: str) -> str:
    """The pattern of a format as the backend reads it."""
    return search_pattern(f"^(?:{FORMATS[name]})$", _LIMITS)
