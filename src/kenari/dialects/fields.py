"""Reading members of a client's JSON with errors that name the field at fault.

`null` is the same as absent everywhere (F2). Values that are not asked for are never looked at.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError, bad_request
from kenari.core.events import Escaped
from kenari.wire import jsonx

_NAMES = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "number": "a number",
    "boolean": "true or false",
}


class Fields:
    """The members of one JSON object. `path` is where the object stands in the body, "" for the body itself."""

    __slots__ = ("members", "path")

    def __init__(self, members: dict[str, Raw], path: str = "") -> None:
        self.members = members
        self.path = path

    @classmethod
    def of(cls, raw: Raw, path: str) -> "Fields":
        """The members of a raw value, which must be an object."""
        if jsonx.kind(raw) != "object":
            raise bad_request(f"{path} must be an object", path)
        try:
            return cls(jsonx.members(raw), path)
        except jsonx.Malformed as error:
            raise jsonx.as_bad_request(error, path) from None

    def at(self, name: str) -> str:
        """The dotted path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> Raw | None:
        """The raw value, None when absent or null."""
        raw = self.members.get(name)
        return None if raw is None or jsonx.is_null(raw) else raw

    def fault(self, name: str, message: str) -> KenariError:
        """The 400 of a member: its path and what it should be."""
        return bad_request(f"{self.at(name)} {message}", self.at(name))

    def typed(self, name: str, kind: str) -> Raw | None:
        """The raw value when it is of this JSON type, None when absent; else the 400."""
        raw = self.members.get(name)
        if raw is None:  # nearly always: most fields are optional
            return None
        found = jsonx.kind(raw)
        if found == kind:
            return raw
        if found in ("null", ""):
            return None
        raise self.fault(name, f"must be {_NAMES[kind]}")

    def escaped(self, name: str) -> Escaped | None:
        """A text as the inside of its literal."""
        raw = self.typed(name, "string")
        return None if raw is None else jsonx.unquoted(raw)

    def string(self, name: str) -> str | None:
        """A text, decoded."""
        raw = self.typed(name, "string")
        return None if raw is None else jsonx.unescape(jsonx.unquoted(raw))

    def require_string(self, name: str, what: str = "a string that is not empty") -> str:
        """A text that must be there and not empty."""
        text = self.string(name)
        if not text:
            raise self.fault(name, f"is required and must be {what}")
        return text

    def boolean(self, name: str) -> bool | None:
        """A truth value."""
        raw = self.typed(name, "boolean")
        return None if raw is None else bytes(raw) == b"true"

    def number(self, name: str) -> Raw | None:
        """A number, raw."""
        return self.typed(name, "number")

    def integer(self, name: str, least: int) -> int | None:
        """A whole number of at least `least`; whole floats (1e3) count."""
        raw = self.typed(name, "number")
        if raw is None:
            return None
        try:
            value: Any = jsonx.value(raw)
            whole = int(value)
        except (jsonx.Malformed, OverflowError, ValueError):
            raise self.fault(name, "is not a usable number") from None
        if whole != value or whole < least:
            raise self.fault(name, f"must be a whole number of at least {least}")
        return min(whole, 2**53)

    def elements(self, name: str) -> list[Raw] | None:
        """The elements of an array, raw."""
        raw = self.typed(name, "array")
        if raw is None:
            return None
        try:
            return jsonx.elements(raw)
        except jsonx.Malformed as error:
            raise jsonx.as_bad_request(error, self.at(name)) from None

    def child(self, name: str) -> "Fields | None":
        """The members of an object."""
        raw = self.typed(name, "object")
        return None if raw is None else Fields.of(raw, self.at(name))

    def children(self, name: str) -> "Iterator[tuple[Raw, Fields]]":
        """The objects of an array, each with its raw source; nothing when the array is absent."""
        for position, raw in enumerate(self.elements(name) or ()):
            yield raw, Fields.of(raw, f"{self.at(name)}[{position}]")


BETAS = {"context_management": "context-management", "mcp_servers": "mcp-client", "container": "code-execution"}
"""Top-level members of Messages requests and the beta that knows them, by the start of its name (F4)."""

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "min_p",
    "repetition_penalty",
)
"""Numbers that are passed on under one name by all formats that know them."""


def read_sampling(fields: Fields, names: tuple[str, ...]) -> dict[str, Raw]:
    """The sampling numbers among these names that are set, checked to be numbers that others can read as well."""
    out: dict[str, Raw] = {}
    for name in names:
        if name not in fields.members:
            continue
        raw = fields.number(name)
        if raw is not None:
            if not jsonx.is_finite(raw):
                raise fields.fault(name, "is not a usable number")
            out[name] = raw
    return out


def read_stop(fields: Fields, name: str) -> list[Escaped]:
    """Stop sequences: a string or an array of strings."""
    raw = fields.get(name)
    if raw is None:
        return []
    if jsonx.kind(raw) == "string":
        return [jsonx.unquoted(raw)]
    out: list[Escaped] = []
    for position, one in enumerate(fields.elements(name) or ()):
        if jsonx.kind(one) != "string":
            raise bad_request(f"{fields.at(name)}[{position}] must be a string", f"{fields.at(name)}[{position}]")
        out.append(jsonx.unquoted(one))
    return out


def read_effort(fields: Fields, name: str, efforts: tuple[str, ...]) -> str | None:
    """One of the effort levels (R1), or the 400 that lists them."""
    effort = fields.string(name)
    if effort is not None and effort not in efforts:
        raise fields.fault(name, f"must be one of {', '.join(efforts)}")
    return effort


def data_url(url: Escaped) -> tuple[str, Escaped] | None:
    """The media type and base64 data of a data URL, None for any other address."""
    if url[:5].lower() != b"data:":
        return None
    head, comma, data = url[5:].partition(b",")
    if not comma or not head.lower().endswith(b";base64"):
        return None
    return head.split(b";")[0].decode("ascii", "replace").replace("\\/", "/").lower(), data
