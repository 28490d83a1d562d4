"""Values of the management API as they are written: amounts, durations, times, networks; reading bodies and queries."""

import difflib
import ipaddress
import re
from datetime import UTC, date, datetime, time, tzinfo
from typing import Annotated, TypeAlias, TypeVar, get_args
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

from kenari.core.caller import Network, Window
from kenari.core.errors import KenariError, bad_request
from kenari.core.price import format_amount, parse_amount
from kenari.wire import jsonx

T = TypeVar("T", bound=msgspec.Struct)
LATEST_TIME = 253402300799
"""Unix seconds: the end of the year 9999, after which dates have no form."""

_CONTROL = r"\u0000-\u001f\u007f"
_TEXT, _WORD = f"^[^{_CONTROL}]+$", f"^[^{_CONTROL}]*$"
_AMOUNT, _SIGNED = r"^[0-9]{1,9}(\.[0-9]{1,9})?$", r"^-?[0-9]{1,9}(\.[0-9]{1,9})?$"
_LASTING = r"^[0-9]{1,7}(\.[0-9]{1,3})?(ms|s|m|h)$"
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern=_TEXT)]
Word: TypeAlias = Annotated[str, Meta(max_length=200, pattern=_WORD)]
Amount: TypeAlias = Annotated[
    str,
    Meta(
        pattern=_AMOUNT,
        description="An amount of money: a decimal string in the currency, with at most nine decimals.",
        examples=["12.50"],
    ),
]
SignedAmount: TypeAlias = Annotated[
    str,
    Meta(
        pattern=_SIGNED,
        description="An amount of money; one below zero takes back what was given.",
        examples=["12.50", "-3"],
    ),
]
Duration: TypeAlias = Annotated[
    str,
    Meta(
        pattern=_LASTING,
        description="A number with ms, s, m or h.",
        examples=["24h"],
    ),
]
NetworkText: TypeAlias = Annotated[
    str,
    Meta(
        max_length=64,
        description="An address or a network.",
        examples=["10.0.0.0/8"],
        extra_json_schema={"format": "network"},
    ),
]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=LATEST_TIME)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)] | Seconds
"""A time as RFC 3339 text with its zone, or as Unix seconds."""
When: TypeAlias = Annotated[
    str,
    Meta(
        max_length=40,
        description='A date of the billing time zone, an RFC 3339 time with its zone, or Unix seconds; "" for none.',
        examples=["2026-11-01"],
        extra_json_schema={"format": "when"},
    ),
]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]
ENDPOINTS = (
    "chat/completions",
    "messages",
    "messages/count_tokens",
    "responses",
    "models",
    "embeddings",
    "images/generations",
    "audio/speech",
    "audio/transcriptions",
    "byok",
)
_ENDPOINT = f"^(/v1/)?({'|'.join(ENDPOINTS)})$"
_GROUPS = r"^(day|model|key|account)(,(day|model|key|account)){0,3}$"
Endpoint: TypeAlias = Annotated[
    str,
    Meta(
        pattern=_ENDPOINT,
        description="A path below /v1, with or without that.",
        examples=["chat/completions"],
    ),
]
Groups: TypeAlias = Annotated[str, Meta(pattern=_GROUPS)]
"""What sums are grouped by."""

_FORMS = {
    _TEXT: "must hold no control characters",
    _WORD: "must hold no control characters",
    _AMOUNT: 'must be an amount like "12.50", with at most nine decimals',
    _SIGNED: 'must be an amount like "12.50" or "-3", with at most nine decimals',
    _LASTING: 'must be a number with ms, s, m or h, like "24h"',
    _ENDPOINT: f"must be one of {', '.join(ENDPOINTS)}",
    _GROUPS: "must be some of day, model, key, account, with commas between them",
}
"""What each pattern asks for, in words: a pattern is for machines."""
_IN_WORDS = {repr(pattern)[1:-1]: words for pattern, words in _FORMS.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DURATION = re.compile(r"([0-9.]+)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNKNOWN = re.compile(r"[oO]bject contains unknown field `(.*)`$")
_MISSING = re.compile(r"[oO]bject missing required field `(.*)`$")
_PATTERN = re.compile(r"expected `str` matching regex '(.*)'$", re.DOTALL)
_NO_WINDOW = re.compile(r"invalid enum value ")


def units(text: str, param: str) -> int:
    """An amount in 1e-9 currency units. Raises the 400."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    try:
        return sign * parse_amount(digits)
    except ValueError as error:
        raise bad_request(f"{param}: {error}", param) from None


def seconds(text: str, param: str) -> float:
    """A duration in seconds. Raises the 400."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise bad_request(f'{param}: must be a duration like "30s", "10m" or "24h"', param)
    return float(found.group(1)) * _UNITS[found.group(2)]


def unix(moment: datetime | float, param: str) -> float:
    """A time in Unix seconds. Raises the 400."""
    value = (moment - _EPOCH).total_seconds() if isinstance(moment, datetime) else moment
    if not 0 <= value <= LATEST_TIME:
        raise bad_request(f"{param}: must be a time from 1970 to 9999", param)
    return value


def unix_of(text: str, zone: tzinfo, param: str) -> float:
    """A time of a query in Unix seconds: a date begins at midnight in `zone`. Raises the 400."""
    try:
        if _DATE.fullmatch(text):
            return unix(datetime.combine(date.fromisoformat(text), time(), zone), param)
        return unix(msgspec.convert(text, Moment, strict=False), param)
    except (ValueError, OverflowError):
        raise bad_request(
            f'{param}: must be like "2026-11-01", "2026-11-01T07:00:00Z" or Unix seconds', param
        ) from None


def networks(texts: list[str], param: str) -> tuple[Network, ...]:
    """Networks; an address stands for itself. Raises the 400."""
    found: list[Network] = []
    for index, text in enumerate(texts):
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            where = f"{param}[{index}]"
            raise bad_request(f'{where}: must be a network like "10.0.0.0/8" or "2001:db8::/32"', where) from None
    return tuple(found)


def endpoints(texts: list[str]) -> tuple[str, ...]:
    """Endpoints without what stands before them in a path."""
    return tuple(dict.fromkeys(text.strip().removeprefix("/v1/") for text in texts))


def stamp(moment: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp_or_none(moment: float | None) -> str | None:
    """The same for what may not have happened."""
    return None if moment is None else stamp(moment)


class Money:
    """How amounts of the one currency are shown: with its own digits, and as many more as a number has."""

    def __init__(self, currency: str, digits: int) -> None:
        self.currency, self.digits = currency, digits

    def show(self, amount: int) -> str:
        """Units of 1e-9 as a decimal string."""
        return format_amount(amount, self.digits)


def read_body(kind: type[T], body: bytes) -> T:
    """A request's body as a record. Raises the 400 that names the field at fault."""
    jsonx.require_utf8(body)
    if not body.strip():
        body = b"{}"
    try:
        return jsonx.read(jsonx.decoder(kind), body)
    except jsonx.Malformed as error:
        raise _refusal(str(error), error.path, kind) from None


def read_query(kind: type[T], query: str) -> T:
    """A query string as a record. Raises the 400 that names the parameter at fault."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=32)
    except ValueError:
        raise bad_request("the query is malformed. write name=value, joined by &, percent-encoded") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise bad_request(f"{shown(name)}: stands twice in the query", shown(name))
        values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        malformed = jsonx.malformed(error)
        raise _refusal(str(malformed), malformed.path, kind) from None


def shown(word: str) -> str:
    """What came from outside as it may stand in a message: printable and short."""
    return "".join(char if char.isprintable() else "?" for char in word[:100])


def _refusal(message: str, path: str, kind: type[msgspec.Struct]) -> KenariError:
    """msgspec's words as a 400. A field's name belongs into the path, where clients look for it."""
    if found := _UNKNOWN.match(message):
        name = shown(found.group(1))
        where = f"{path}.{name}" if path else name
        near = difflib.get_close_matches(name, () if path else kind.__struct_fields__, 1)
        return bad_request(f"{where}: is not a known field" + (f"; did you mean {near[0]}?" if near else ""), where)
    if found := _MISSING.match(message):
        where = f"{path}.{found.group(1)}" if path else found.group(1)
        return bad_request(f"{where}: is required", where)
    if found := _PATTERN.match(message):
        message = _IN_WORDS[found.group(1)]
    elif _NO_WINDOW.match(message):  # windows are the only words of this kind that come in
        message = f"must be one of {', '.join(get_args(Window))}"
    where = shown(path)
    return bad_request(f"{where or 'the body'}: {message}", where or None)
