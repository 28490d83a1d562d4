"""Parts -> content blocks for a Messages provider.

A block that has its source goes out as it came. What vendors refuse is never written: texts without a visible
character, ids outside [A-Za-z0-9_-], inputs that are no objects (D27).
"""

import base64
import hashlib
import re
from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.events import Escaped
from kenari.core.request import CallPart, FilePart, ImagePart, OpaquePart, Part, ReasoningPart, ResultPart, TextPart
from kenari.dialects.messages.blocks import NAME
from kenari.wire import jsonx

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]+\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_SPACE = re.compile(rb"(?:[ ]|\\[nrtf]|\\u00(?:20|0[9aAcCdD]|[aA]0))*\Z")
_BEGUN = re.compile(rb"(?:[ ]|\\[nrt])*\{")
_MARK = b'"cache_control"'
PDF = "application/pdf"


class Writer:
    """Writes blocks. `marks` is false for a provider that takes no `cache_control`."""

    def __init__(self, marks: bool) -> None:
        self._marks = marks

    def is_clean(self, parts: list[Part]) -> bool:
        """Whether a message of these parts can go out as the client wrote it."""
        return bool(parts) and all(_is_clean(part) for part in parts) and _leads_with_results(parts)

    def source(self, raw: Raw | None) -> Raw | None:
        """A source that may be sent as it is."""
        if raw is None or self._marks or _MARK not in bytes(raw):
            return raw
        return None

    def blocks(self, parts: list[Part]) -> list[Any]:
        """The blocks of a message, results first (they have to stand in front)."""
        ordered = [part for part in parts if isinstance(part, ResultPart)]
        ordered += [part for part in parts if not isinstance(part, ResultPart)]
        return [block for part in ordered if (block := self._block(part)) is not None]

    def content(self, parts: list[Part]) -> Any:
        """A message's content, None where there is nothing. A string where one plain text is all there is and no mark can
        ever stand on it: a conversation's prefix stays the same bytes while marks move on."""
        return self.blocks(parts) or None if self._marks else self.result(parts)

    def result(self, parts: list[Part]) -> Any:
        """The same of a tool's result: marks stand on its block, never inside."""
        text = self._plain(parts)
        return jsonx.quoted_raw(text) if text is not None else self.blocks(parts) or None

    def marked(self, out: dict[str, Any], cache: Raw | None) -> dict[str, Any]:
        """The same object with the client's cache mark."""
        if cache is not None and self._marks:
            out["cache_control"] = cache
        return out

    def _plain(self, parts: list[Part]) -> Escaped | None:
        if len(parts) != 1:
            return None
        part = parts[0]
        if not isinstance(part, TextPart) or self.source(part.raw) is not None or is_blank(part.text):
            return None
        return part.text if part.cache is None or not self._marks else None

    def _block(self, part: Part) -> Any:
        clean = _is_clean(part)
        raw = None if isinstance(part, CallPart | ResultPart) and not clean else self._raw_of(part)
        match part:
            case TextPart():
                if is_blank(part.text):
                    return None
                return raw or self.marked({"type": "text", "text": jsonx.quoted_raw(part.text)}, part.cache)
            case ImagePart():
                return raw or self.marked(_image(part), part.cache)
            case FilePart():
                return raw or self.marked(_document(part), part.cache)
            case ReasoningPart():
                return raw or _thinking(part)
            case CallPart():
                return raw or self.marked(_call(part), part.cache)
            case ResultPart():
                return raw or self.marked(self._result(part), part.cache)
            case OpaquePart():
                return part.raw if part.dialect == NAME else None
            case _:
                return None

    def _raw_of(self, part: Part) -> Raw | None:
        """A part's source, where it is one of ours: others' items have other words."""
        raw = getattr(part, "raw", None)
        return self.source(raw) if isinstance(raw, Raw) else None

    def _result(self, part: ResultPart) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "tool_result", "tool_use_id": safe_id(part.call_id)}
        content = self.result(part.parts)
        if content is not None:
            out["content"] = content
        if part.is_error:
            out["is_error"] = True
        return out


def _leads_with_results(parts: list[Part]) -> bool:
    """Whether results stand in front of all else, as they have to."""
    results = sum(isinstance(part, ResultPart) for part in parts)
    return all(isinstance(part, ResultPart) for part in parts[:results])


def _is_clean(part: Part) -> bool:
    match part:
        case TextPart():
            return not is_blank(part.text)
        case CallPart():
            return _SAFE_ID.match(part.call_id) is not None
        case ResultPart():
            return _SAFE_ID.match(part.call_id) is not None and all(_is_clean(inner) for inner in part.parts)
        case _:
            return True


def without_sources(parts: list[Part]) -> list[Part]:
    """The same parts of another dialect's client: their sources are in that dialect's words."""
    out: list[Part] = []
    for part in parts:
        match part:
            case TextPart():
                out.append(TextPart(part.text, cache=part.cache))
            case ImagePart():
                out.append(ImagePart(part.url, part.media_type, part.data, cache=part.cache))
            case FilePart():
                out.append(FilePart(part.filename, part.media_type, part.data, part.url, part.text, part.cache))
            case ReasoningPart():
                out.append(ReasoningPart(part.text, part.proof, part.kind))
            case CallPart():
                out.append(CallPart(part.call_id, part.name, part.arguments, part.quoted, cache=part.cache))
            case ResultPart():
                out.append(ResultPart(part.call_id, without_sources(part.parts), part.is_error, part.cache))
            case OpaquePart():
                pass
            case _:
                out.append(part)
    return out


def is_blank(text: Escaped) -> bool:
    """No visible character: such texts are refused."""
    return _SPACE.match(text) is not None


def safe_id(call_id: str) -> str:
    """A call's id that vendors take, the same for the call and its result; itself when it is fine."""
    if _SAFE_ID.match(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_UNSAFE.sub('_', call_id)[:48]}_{digest}"


def _image(part: ImagePart) -> dict[str, Any]:
    if part.url:
        return {"type": "image", "source": {"type": "url", "url": jsonx.quoted_raw(part.url)}}
    media_type = _bare(part.media_type)
    if media_type and not media_type.startswith("image/"):
        return _document(FilePart(media_type=media_type, data=part.data))
    data = jsonx.quoted_raw(part.data)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type or "image/png", "data": data}}


def _document(part: FilePart) -> dict[str, Any]:
    media_type = _bare(part.media_type)
    source: dict[str, Any]
    if part.text:
        source = {"type": "text", "media_type": "text/plain", "data": jsonx.quoted_raw(part.text)}
    elif part.url:
        source = {"type": "url", "url": jsonx.quoted_raw(part.url)}
    elif media_type.startswith("image/"):
        return _image(ImagePart(media_type=media_type, data=part.data))
    elif media_type in ("", PDF):
        source = {"type": "base64", "media_type": PDF, "data": jsonx.quoted_raw(part.data)}
    elif media_type.startswith("text/") or media_type == "application/json":
        source = {"type": "text", "media_type": "text/plain", "data": _text_of(part.data)}
    else:
        raise _cannot(f"this model takes PDF and text documents, not {media_type[:64]!r}. send the document's text")
    out: dict[str, Any] = {"type": "document", "source": source}
    if part.filename:
        out["title"] = jsonx.quoted_raw(part.filename)
    return out


def _text_of(data: Escaped) -> str:
    try:
        return base64.b64decode(jsonx.unescape(data), validate=False).decode()
    except ValueError:
        raise _cannot("a text document is not UTF-8 in base64. send it as text") from None


def _cannot(message: str) -> KenariError:
    return KenariError("bad_request", message, "messages", elsewhere=True)


def _bare(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _thinking(part: ReasoningPart) -> dict[str, Any] | None:
    """Earlier thoughts go to their maker with its proof, or not at all (R3)."""
    if not part.proof:
        return None
    if part.kind == "redacted":
        return {"type": "redacted_thinking", "data": part.proof}
    return {"type": "thinking", "thinking": jsonx.quoted_raw(part.text), "signature": part.proof}


def _call(part: CallPart) -> dict[str, Any]:
    return {"type": "tool_use", "id": safe_id(part.call_id), "name": part.name, "input": input_of(part)}


def input_of(part: CallPart) -> Raw:
    """A call's arguments as the object that `input` must be."""
    if not part.quoted:
        return Raw(part.arguments or b"{}")
    return as_object(part.arguments)


def begins_object(arguments: Escaped) -> bool:
    """Whether escaped JSON text begins as an object."""
    return arguments[:1] == b"{" or _BEGUN.match(arguments) is not None


def as_object(arguments: Escaped) -> Raw:
    """Escaped JSON text as an object: `{}` when empty or null, and what is no object as `{"arguments": "<the text>"}`."""
    if is_blank(arguments) or arguments == b"null":
        return Raw(b"{}")
    text = jsonx.unescape(arguments).encode("utf-8", "replace").strip()
    if text.startswith(b"{"):
        try:
            jsonx.members(text)
        except jsonx.Malformed:
            pass
        else:
            return Raw(text if jsonx.replace_lone_surrogates(text) is None else jsonx.encode(jsonx.value(text)))
    return Raw(b'{"arguments":"' + arguments + b'"}')
