"""JSON with comments, changed in place: a value is set and every other byte of the user's file stays as it is."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from kenari.wire import jsonx

_SPACE = re.compile(r"(?:[\s,]|//[^\n]*|/\*.*?\*/)*", re.S)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_SCALAR = re.compile(r"[^\s,\]}/]+")


class JsoncError(ValueError):
    """The text is no JSON object with comments. The message says where."""


class _Member(NamedTuple):
    """A member of an object, by its places in the text."""

    name: str
    begin: int
    value: int
    end: int


def merge(text: str, settings: Mapping[str, Any]) -> str:
    """The text with these settings; objects are merged member by member, all else is replaced.

    Raises JsoncError for a text that is no object.
    """
    if not text.strip():
        return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    begin = _skip(text, 0)
    if text[begin : begin + 1] != "{" or _skip(text, _end(text, begin)) != len(text):
        raise JsoncError("the file is not one JSON object")
    return _merge(text, begin, settings, 1)


def _merge(text: str, begin: int, settings: Mapping[str, Any], depth: int) -> str:
    """Merge into the object at `begin`, member by member."""
    for name, value in settings.items():
        found = next((member for member in _members(text, begin) if member.name == name), None)
        if found is None:
            text = _insert(text, begin, name, value, depth)
        elif isinstance(value, Mapping) and text[found.value] == "{":
            text = _merge(text, found.value, cast("Mapping[str, Any]", value), depth + 1)
        else:
            text = text[: found.value] + _written(value, depth) + text[found.end :]
    return text


def _insert(text: str, begin: int, name: str, value: Any, depth: int) -> str:
    """A new member behind the last one."""
    indent = "  " * depth
    written = f"\n{indent}{json.dumps(name, ensure_ascii=False)}: {_written(value, depth)}"
    members = _members(text, begin)
    if not members:
        close = _end(text, begin) - 1
        inside = text[begin + 1 : close].rstrip()
        return text[: begin + 1] + inside + written + "\n" + "  " * (depth - 1) + text[close:]
    last = members[-1].end
    comma = re.match(r"\s*,", text[last:])
    if comma:  # a trailing comma stands already
        last += comma.end()
        return text[:last] + written + "," + text[last:]
    return text[:last] + "," + written + text[last:]


def _written(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n" + "  " * depth)


def _members(text: str, begin: int) -> list[_Member]:
    """The members of the object at `begin`."""
    members: list[_Member] = []
    at = _skip(text, begin + 1)
    while text[at : at + 1] != "}":
        start = at
        at = _end(text, start)
        name = str(jsonx.value(text[start:at].encode()))
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise JsoncError(f"a colon is missing in line {_line(text, at)}")
        value = _skip(text, at + 1)
        at = _end(text, value)
        members.append(_Member(name, start, value, at))
        at = _skip(text, at)
    return members


def _end(text: str, at: int) -> int:
    """Where the value that begins at `at` ends."""
    first = text[at : at + 1]
    if first == '"':
        found = _STRING.match(text, at)
    elif first in ("{", "["):
        return _end_of_group(text, at)
    else:
        found = _SCALAR.match(text, at)
    if found is None:
        raise JsoncError(f"a value is missing in line {_line(text, at)}")
    return found.end()


def _end_of_group(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        char = text[at]
        if char == '"':
            at = _end(text, at)
            continue
        if char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
            if not depth:
                return at + 1
        at = max(at + 1, _skip(text, at + 1))
    raise JsoncError("a bracket is not closed")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
