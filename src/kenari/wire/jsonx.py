"""JSON on bytes: the only importer of `msgspec.json`.

Most values cross kenari as they came. `Raw` members are spliced from one document into another, texts as the escaped
inside of their string literal (see core/events.py). Only what a rule has to understand is decoded.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from kenari.core.errors import KenariError, bad_request
from kenari.core.events import Escaped

T = TypeVar("T")

Decoder = msgspec.json.Decoder
"""The type of a reusable decoder."""

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str).decode

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.", re.S
)
_PATH = re.compile(r" - at `\$\.?(.*?)`$")


CAREFUL = bytes([*range(32), 0x22, 0x5C, *range(127, 256)])
"""Bytes that end a string, begin an escape, are illegal in one, or need their UTF-8 checked: a text without them may be
copied from one document into another unseen."""
PLAIN = bytes(ord(" ") if byte in CAREFUL else byte for byte in range(256))
"""Such a text stays as it is when it is translated by this table."""


def is_text(text: bytes) -> bool:
    """Whether these bytes may stand between two quotes as they are: their escapes are whole, their UTF-8 is valid, and no
    quote, control character or half of a surrogate pair is among them. Most texts are plain, which is seen at once."""
    if text.translate(PLAIN) == text:
        return True
    try:
        _string(b'"%b"' % text)
    except msgspec.DecodeError:
        return False
    return True


def are_texts(texts: list[bytes]) -> bool:
    """The same of each of them. (With a space between them none is saved by what follows: it ends no escape, no character
    and no pair.)"""
    return is_text(b" ".join(texts))


class Malformed(ValueError):
    """Bytes that are not the JSON they should be. `path` is dotted (`messages[2].role`), "" for the whole."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


def decoder(kind: type[T], strict: bool = True) -> msgspec.json.Decoder[T]:
    """A reusable decoder for `kind`; call it through `read`."""
    return msgspec.json.Decoder(kind, strict=strict)


def encode(value: Any) -> bytes:
    """JSON bytes of a value; `Raw` members go in as they are. Lone surrogates are replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_without_surrogates(value))


def read(use: msgspec.json.Decoder[T], data: bytes | Raw) -> T:
    """Decode, or raise Malformed with a message for people. Escaped lone surrogates become U+FFFD (F2)."""
    try:
        return use.decode(data)
    except msgspec.ValidationError as error:
        raise malformed(error) from None
    except msgspec.DecodeError as error:
        repaired = replace_lone_surrogates(bytes(data))
        if repaired is None:
            raise malformed(error) from None
    except RecursionError:
        raise Malformed("the JSON is nested too deeply") from None
    try:
        return use.decode(repaired)
    except (msgspec.DecodeError, RecursionError) as error:
        raise malformed(error) from None


def schemas(kinds: Iterable[Any], template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """JSON Schemas (2020-12) of types, and those of the records in them by name; `template` makes the references."""
    return msgspec.json.schema_components(kinds, ref_template=template)


def members(data: bytes | Raw) -> dict[str, Raw]:
    """The members of a JSON object, raw, in order. Raises Malformed."""
    return read(_MEMBERS, data)


def elements(data: bytes | Raw) -> list[Raw]:
    """The elements of a JSON array, raw. Raises Malformed."""
    return read(_ELEMENTS, data)


def value(data: bytes | Raw) -> Any:
    """The Python value of any JSON, numbers of any size included. Raises Malformed."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            return _without_surrogates(json.loads(bytes(data)))
        except (ValueError, RecursionError) as error:
            raise malformed(error) from None


def kind(raw: bytes | Raw) -> str:
    """The JSON type of a raw value by its first byte: object, array, string, number, boolean, null, or "" for none."""
    view = memoryview(raw)
    return _KINDS.get(view[0], "number") if view.nbytes else ""


def raw(value: Any) -> Raw:
    """A value as raw JSON."""
    return Raw(encode(value))


def is_finite(raw: bytes | Raw) -> bool:
    """Whether a raw number is one that a double holds: 1e999 is legal JSON, and infinite to nearly every reader."""
    try:
        return math.isfinite(float(bytes(raw)))
    except ValueError:
        return False


def is_null(raw: bytes | Raw | None) -> bool:
    """Absent or null: the same for every optional field (F2)."""
    return raw is None or kind(raw) in ("", "null")


def unquoted(raw: bytes | Raw) -> Escaped:
    """The escaped inside of a raw string literal. The caller has checked that it is one."""
    return bytes(memoryview(raw)[1:-1])


def escape(text: str) -> Escaped:
    """A Python text as the inside of a JSON string. Lone surrogates stay as escapes."""
    try:
        return _encode(text)[1:-1]
    except UnicodeEncodeError:
        return json.dumps(text, ensure_ascii=True).encode()[1:-1]


def unescape(text: Escaped) -> str:
    """The Python text of an escaped one; lone surrogates come out as U+FFFD."""
    if b"\\" not in text:
        return text.decode()
    try:
        return _string(b'"' + text + b'"')
    except msgspec.DecodeError:
        repaired = replace_lone_surrogates(text)
        return _string(b'"' + (text if repaired is None else repaired) + b'"')


def quote(text: Escaped) -> bytes:
    """The string literal of an escaped text."""
    return b'"' + text + b'"'


def quoted_raw(text: Escaped) -> Raw:
    """The same as a Raw member for `encode`."""
    return Raw(b'"' + text + b'"')


def is_object(text: Escaped) -> bool:
    """Whether an escaped text is a whole JSON object: nothing but white space can follow it."""
    if text.lstrip()[:1] != b"{":
        return False
    try:
        value(unescape(text).encode("utf-8", "replace"))
    except (Malformed, ValueError):
        return False
    return True


def embed(document: bytes | Raw) -> Escaped:
    """JSON text as the inside of a JSON string: what `arguments` and `partial_json` carry."""
    return escape(bytes(document).decode())


def one_line(document: bytes | Raw) -> bytes:
    """The same JSON without line ends, as frames want it (S13): where there are any, all white space between its tokens
    goes. Its texts and numbers stay as they are."""
    data = bytes(document)
    if b"\n" not in data and b"\r" not in data:
        return data
    try:
        return msgspec.json.format(data, indent=-1)
    except (msgspec.DecodeError, RecursionError):  # half a pair in a text
        return data.translate(None, b"\r\n")


def replace_lone_surrogates(data: bytes) -> bytes | None:
    """The same JSON with every escaped half of a surrogate pair replaced by U+FFFD; None when there is none."""
    if b"\\u" not in data:
        return None

    def mend(match: re.Match[bytes]) -> bytes:
        text = match.group()
        return b"\\ufffd" if len(text) == 6 and text[1:2] == b"u" else text

    out = _ESCAPES.sub(mend, data)
    return None if out == data else out


def require_utf8(body: bytes) -> None:
    """Raise the 400 of F2 for a body that is not UTF-8."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise bad_request(
            f"the request body is not valid UTF-8 (byte {error.start}). send JSON encoded as UTF-8"
        ) from None


def request_fields(body: bytes) -> dict[str, Raw]:
    """The top-level members of a client's request. Raises the 400 that tells what is wrong with the JSON."""
    if not body.isascii():
        require_utf8(body)
    try:
        return _MEMBERS.decode(body)
    except (msgspec.DecodeError, RecursionError):  # said in words below, or mended
        pass
    if body.startswith(_MARK):
        raise bad_request("the request body begins with a byte order mark. send JSON without one")
    if not body.strip():
        raise bad_request("the request body is empty. send a JSON object")
    try:
        return read(_MEMBERS, body)
    except Malformed as error:
        if kind(body.lstrip()[:1]) not in ("object", "") and not str(error).startswith("the JSON is nested"):
            raise bad_request("the request body must be a JSON object") from None
        raise bad_request(f"the request body is not valid JSON: {error}") from None


def as_bad_request(error: Malformed, base: str) -> KenariError:
    """The 400 of a value that has the wrong form; `base` is where that value stands in the body."""
    path = error.path
    where = base + (path if not path or path.startswith("[") or not base else "." + path)
    return bad_request(f"{where or 'the body'}: {error}", where or None)


def malformed(error: Exception) -> Malformed:
    """An error of msgspec in our words, with the path of what is at fault."""
    if isinstance(error, RecursionError):
        return Malformed("the JSON is nested too deeply")
    text = str(error)
    found = _PATH.search(text)
    path = found.group(1).replace("[...]", "") if found else ""
    text = _PATH.sub("", text)
    return Malformed(_decapitalized(text) if text else "invalid JSON", path)


def _decapitalized(text: str) -> str:
    """A sentence that begins in lower case, unless its first word is an abbreviation."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _without_surrogates(item: Any) -> Any:
    if isinstance(item, str):
        return item.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(item, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in cast("dict[Any, Any]", item).items()}
    if isinstance(item, list):
        return [_without_surrogates(v) for v in cast("list[Any]", item)]
    return _without_surrogates(msgspec.to_builtins(item)) if isinstance(item, msgspec.Struct) else item


_MARK = b"\xef\xbb\xbf"
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_KINDS = {
    0x7B: "object",
    0x5B: "array",
    0x22: "string",
    0x74: "boolean",
    0x66: "boolean",
    0x6E: "null",
}
