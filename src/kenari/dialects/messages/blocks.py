"""A client's content -> parts. Every block keeps its source, so that a Messages provider gets those very bytes."""

from msgspec import Raw

from kenari.core.errors import KenariError, bad_request
from kenari.core.events import Escaped
from kenari.core.request import (
    CallPart,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    Role,
    TextPart,
)
from kenari.dialects.fields import Fields
from kenari.wire import jsonx

NAME = "messages"


class Content:
    """Reads the content of messages. `referenced` collects the names of the tools that results refer to (D19)."""

    def __init__(self) -> None:
        self.referenced: set[str] = set()

    def parts(self, holder: Fields, name: str, role: Role) -> list[Part]:
        """The parts of a message's content (or of the system prompt): a string or an array of blocks."""
        raw = holder.get(name)
        kind = "" if raw is None else jsonx.kind(raw)
        if raw is not None and kind == "string":
            text = jsonx.unquoted(raw)
            return [TextPart(text)] if text else []
        if kind != "array":
            raise holder.fault(name, "must be a string or an array of blocks")
        return [self._block(raw, block, role) for raw, block in holder.children(name)]

    def _block(self, raw: Raw, block: Fields, role: Role) -> Part:
        kind = block.require_string("type", "the type of the block")
        match kind:
            case "text":
                return _text(raw, block)
            case "image" | "document":
                if role == "system":
                    raise _misplaced(block, kind, "user")
                return _image(raw, block) if kind == "image" else _document(raw, block)
            case "search_result":
                return _search_result(raw, block)
            case "tool_use":
                _require_role(block, kind, role, "assistant")
                return _call(raw, block)
            case "tool_result":
                _require_role(block, kind, role, "user")
                return self._result(raw, block)
            case "thinking":
                _require_role(block, kind, role, "assistant")
                proof = block.string("signature") or ""
                return ReasoningPart(block.escaped("thinking") or b"", proof, "signature" if proof else "mark", raw=raw)
            case "redacted_thinking":
                _require_role(block, kind, role, "assistant")
                return ReasoningPart(b"", block.require_string("data"), "redacted", raw=raw)
            case _:
                return OpaquePart(NAME, kind, raw)

    def _result(self, raw: Raw, block: Fields) -> ResultPart:
        call_id = block.require_string("tool_use_id", "the id of the tool_use block it answers")
        is_error = bool(block.boolean("is_error"))
        cache = block.get("cache_control")
        content = block.get("content")
        if content is None:
            return ResultPart(call_id, [], is_error, cache, raw)
        if jsonx.kind(content) == "string":
            text = jsonx.unquoted(content)
            return ResultPart(call_id, [TextPart(text)] if text else [], is_error, cache, raw)
        parts: list[Part] = []
        told = False
        if jsonx.kind(content) != "array":
            raise block.fault("content", "must be a string or an array of blocks")
        for inner_raw, inner in block.children("content"):
            kind = inner.require_string("type", "the type of the block")
            if kind == "tool_reference":
                parts.append(self._reference(inner))
                told = True
            elif kind in ("text", "image", "document", "search_result"):
                parts.append(self._block(inner_raw, inner, "user"))
            else:
                parts.append(OpaquePart(NAME, kind, inner_raw))
        return ResultPart(call_id, parts, is_error, cache, None if told else raw)

    def _reference(self, block: Fields) -> TextPart:
        """A tool that a search has found: the model reads of it, and its tool is sent from now on."""
        self.referenced.add(block.require_string("tool_name", "the name of a tool"))
        return TextPart(b"tool loaded: " + (block.escaped("tool_name") or b""))


def _require_role(block: Fields, kind: str, role: Role, wanted: Role) -> None:
    if role != wanted:
        raise _misplaced(block, kind, wanted)


def _misplaced(block: Fields, kind: str, wanted: Role) -> KenariError:
    article = "an" if kind == "image" else "a"
    message = f"{block.path}: {article} {kind} block can only stand in a message of the {wanted}"
    return bad_request(message, block.at("type"))


def _text(raw: Raw, block: Fields) -> TextPart:
    text = block.escaped("text")
    if text is None:
        raise block.fault("text", "is required and must be a string")
    return TextPart(text, cache=block.get("cache_control"), raw=raw)


def _source(block: Fields) -> Fields:
    source = block.child("source")
    if source is None:
        raise block.fault("source", "is required and must be an object")
    return source


def _required(fields: Fields, name: str) -> Escaped:
    text = fields.escaped(name)
    if not text:
        raise fields.fault(name, "is required and must be a string that is not empty")
    return text


def _image(raw: Raw, block: Fields) -> Part:
    source = _source(block)
    cache = block.get("cache_control")
    match source.require_string("type", "base64 or url"):
        case "base64":
            media_type = source.require_string("media_type", "a media type such as image/png")
            return ImagePart(media_type=media_type, data=_required(source, "data"), cache=cache, raw=raw)
        case "url":
            return ImagePart(url=_required(source, "url"), cache=cache, raw=raw)
        case _:
            return OpaquePart(NAME, "image", raw)


def _document(raw: Raw, block: Fields) -> Part:
    source = _source(block)
    title = block.escaped("title") or b""
    cache = block.get("cache_control")
    match source.require_string("type", "base64, text, content or url"):
        case "base64":
            media_type = source.require_string("media_type", "a media type such as application/pdf")
            data = _required(source, "data")
            return FilePart(filename=title, media_type=media_type, data=data, cache=cache, raw=raw)
        case "text":
            text = source.escaped("data")
            if text is None:
                raise source.fault("data", "is required and must be a string")
            return FilePart(filename=title, media_type="text/plain", text=text, cache=cache, raw=raw)
        case "url":
            return FilePart(filename=title, url=_required(source, "url"), cache=cache, raw=raw)
        case "content":
            inner = Content().parts(source, "content", "user")
            if all(isinstance(part, TextPart) for part in inner):
                text = b"\\n".join(part.text for part in inner if isinstance(part, TextPart))
                return FilePart(filename=title, media_type="text/plain", text=text, cache=cache, raw=raw)
            return OpaquePart(NAME, "document", raw)
        case _:
            return OpaquePart(NAME, "document", raw)


def _search_result(raw: Raw, block: Fields) -> Part:
    """What a search found, with its words as they stand for models that do not know such blocks."""
    content = block.get("content")
    found = content is not None and jsonx.kind(content) == "array"
    words = [inner.escaped("text") for _, inner in block.children("content")] if found else []
    if not any(words):
        return OpaquePart(NAME, "search_result", raw)
    lines = [block.escaped("title"), block.escaped("source"), *words]
    return TextPart(b"\\n".join(line for line in lines if line), cache=block.get("cache_control"), raw=raw)


def _call(raw: Raw, block: Fields) -> CallPart:
    call_id = block.require_string("id")
    name = block.require_string("name", "the name of a tool")
    given = block.typed("input", "object")
    arguments = b"{}" if given is None else bytes(given)
    return CallPart(call_id, name, arguments, quoted=False, cache=block.get("cache_control"), raw=raw)
