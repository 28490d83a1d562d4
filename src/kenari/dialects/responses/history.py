"""Input items -> turns. Items of the assistant that follow each other are one turn, and so are results (B067)."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from kenari.core.events import Escaped
from kenari.core.request import (
    CallPart,
    ImagePart,
    Notice,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    Role,
    TextPart,
    Turn,
)
from kenari.dialects.fields import Fields, data_url
from kenari.dialects.responses.packed import QUESTION, unpack
from kenari.wire import jsonx

_TEXT = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"}
)
_LISTINGS = frozenset({"additional_tools", "tool_search_output"})

CARRIED = Raw(b"")
"""The `raw` of a part whose item stands in `raw` of a part before it: one message item may have several parts."""


class _Head(msgspec.Struct, gc=False):
    """What most items are: a message."""

    type: str | None = None
    role: str | None = None
    content: Raw = Raw()


class _Piece(msgspec.Struct, gc=False):
    """What most parts are: text."""

    type: str | None = None
    text: Raw = Raw()


_HEAD = jsonx.decoder(_Head)
_PIECES = jsonx.decoder(list[_Piece])
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class History:
    """Collects input items into `turns`. What is dropped is noted (D9)."""

    def __init__(self, notices: list[Notice]) -> None:
        self.turns: list[Turn] = []
        self.asked = False  # for notes on the conversation, by a `compaction_trigger`
        self._notices = notices
        self._run = ""  # what the last turn still takes: "assistant" items or "results"

    def add(self, raw: Raw, path: str) -> Fields | None:
        """Take the next item, which stands at `path`. Returns its members when it brings tools (D18). Raises the 400
        that names the fault."""
        self.asked = False  # by an item that is not the last: its notes follow
        head = _read_plain(raw)
        if head is not None:
            role, texts = head
            self._take_message(role, [TextPart(text) for text in texts], raw, path)
            return None
        item = Fields.of(raw, path)
        kind = item.string("type") or _untyped(item)
        if kind == "message":
            role = item.string("role")
            if role is None or role not in _ROLES:
                raise item.fault("role", "must be system, developer, user or assistant")
            dropped: list[str] = []
            parts = _content(item, role, dropped)
            self._notices += [Notice(name[:64], "a part of an unknown kind") for name in dropped]
            self._take_message(role, parts, None if dropped else raw, path)
        elif kind == "reasoning":
            self._take("assistant", [_reasoning(item, raw)], path)
        elif kind in _CALLS:
            self._take("assistant", [_call(kind, item, raw)], path)
        elif kind in _OUTPUTS:
            self._take("results", [_output(kind, item, raw)], path)
        elif kind == "item_reference":
            _follow(item)
        elif kind == "compaction":
            self._take_compaction(item, raw, path)
        elif kind == "compaction_trigger":
            self.asked = True
        elif kind != "additional_tools":  # unknown kinds are dropped (S140)
            self._notices.append(Notice(kind[:64], "an input item of an unknown kind"))
        return item if kind in _LISTINGS else None

    def ask(self, path: str) -> None:
        """The last item, which stands at `path`, asks for notes."""
        self._take_message("user", [TextPart(jsonx.escape(QUESTION))], None, path)

    def _take_message(self, role: str, parts: Sequence[TextPart | ImagePart], raw: Raw | None, path: str) -> None:
        """`raw` is the item where all of it goes on, None where parts of it were dropped."""
        if role == "assistant":
            for position, part in enumerate(parts):
                part.raw = raw if position == 0 or raw is None else CARRIED
            self._take("assistant", parts, path)
            return
        self.turns.append(Turn(_ROLES[role], list(parts), developer=role == "developer", raw=raw, param=path))
        self._run = ""

    def _take_compaction(self, item: Fields, raw: Raw, path: str) -> None:
        """Notes that our compact endpoint made are a user's text; those of others only their maker can read."""
        content = item.get("encrypted_content")
        if content is None or jsonx.kind(content) != "string":  # nothing in it for anyone (S140)
            self._notices.append(Notice("compaction", "an item without its content"))
            return
        notes = unpack(jsonx.unescape(jsonx.unquoted(content)))
        part = TextPart(notes) if notes is not None else OpaquePart("responses", "compaction", raw)
        self.turns.append(Turn("user", [part], param=path))
        self._run = ""

    def _take(self, run: str, parts: Sequence[Part], path: str) -> None:
        """Parts of the assistant's turn, or results."""
        if self._run == run:
            self.turns[-1].parts += parts
        else:
            self.turns.append(Turn("assistant" if run == "assistant" else "user", list(parts), param=path))
            self._run = run


def _read_plain(raw: Raw) -> tuple[str, list[Escaped]] | None:
    """Role and texts of a message that is nothing but text, as nearly all are; None for what needs a closer look."""
    try:
        head = jsonx.read(_HEAD, raw)
        role = head.role
        if role is None or role not in _ROLES or head.type not in (None, "message"):
            return None
        match jsonx.kind(head.content):
            case "string":
                return role, [jsonx.unquoted(head.content)]
            case "array":
                pieces = jsonx.read(_PIECES, head.content)
            case _:
                return None
    except jsonx.Malformed:
        return None
    texts = [
        jsonx.unquoted(piece.text) for piece in pieces if piece.type in _TEXT and jsonx.kind(piece.text) == "string"
    ]
    return (role, texts) if len(texts) == len(pieces) else None


def _untyped(item: Fields) -> str:
    """What an item without a type is: a message, or a reference, which is nothing but an id."""
    return "item_reference" if item.members.keys() <= {"type", "id"} and item.get("id") is not None else "message"


def _follow(item: Fields) -> None:
    """D17: references to reasoning may be missing, others hold what the assistant said."""
    if not (item.string("id") or "").startswith("rs_"):
        raise item.fault(
            "type",
            "item_reference cannot be followed: nothing is kept here. set store: false in your client so that it sends "
            "the items themselves",
        )


def _content(item: Fields, role: str, dropped: list[str]) -> list[TextPart | ImagePart]:
    """The parts of a message; those of an unknown kind that the assistant's may lose are added to `dropped` (S146)."""
    raw = item.get("content")
    if raw is None:
        if role == "assistant":
            return []
        raise item.fault("content", "is required: a string or an array of parts")
    if jsonx.kind(raw) == "string":
        return [TextPart(jsonx.unquoted(raw))]
    if jsonx.kind(raw) != "array":
        raise item.fault("content", "must be a string or an array of parts")
    parts: list[TextPart | ImagePart] = []
    for _, part in item.children("content"):
        known = _part(part, role)
        parts += known
        if not known:
            dropped.append(part.string("type") or "part")
    return parts


def _part(part: Fields, role: str) -> list[TextPart | ImagePart]:
    """S142-S146."""
    kind = part.string("type")
    if kind in _TEXT:
        text = part.escaped("text")
        if text is None:
            raise part.fault("text", "is required")
        return [TextPart(text)]
    match kind:
        case "refusal":
            return [TextPart(part.escaped("refusal") or b"", refusal=True)]
        case "input_image":
            if role not in ("user", "assistant"):
                raise part.fault("type", f"input_image is not taken in {role} messages")
            return [image(part)]
        case "input_file":
            raise part.fault(
                "type", "input_file is not taken here. send documents as file parts to POST /v1/chat/completions"
            )
        case _:
            if role == "assistant":  # the model's own history
                return []
            raise part.fault(
                "type", f"{(kind or 'a part without type')[:64]!r} is not a part that {role} messages take"
            )


def image(part: Fields) -> ImagePart:
    """An input_image with a string image_url."""
    if part.get("image_url") is None and part.get("file_id") is not None:
        raise part.fault("file_id", "is not known here: nothing is kept. send image_url instead")
    url = part.escaped("image_url")
    if not url:
        raise part.fault("image_url", "is required: a data URL or an http(s) address")
    detail = part.string("detail")
    inline = data_url(url)
    if inline is not None:
        return ImagePart(media_type=inline[0], data=inline[1], detail=detail)
    if not url.lower().startswith((b"https:", b"http:")):
        raise part.fault("image_url", "must be a data URL (base64) or an http(s) address")
    return ImagePart(url=url, detail=detail)


def _reasoning(item: Fields, raw: Raw) -> ReasoningPart:
    """Earlier reasoning: its summary, else its text; the proof that it carries (S138, D5)."""
    text = _texts(item, "summary") or _texts(item, "content")
    proof = item.get("encrypted_content")
    value = jsonx.unescape(jsonx.unquoted(proof)) if proof is not None and jsonx.kind(proof) == "string" else ""
    return ReasoningPart(text, value, "encrypted" if value else "mark", item.string("id") or "", raw)


def _texts(item: Fields, name: str) -> Escaped:
    raw = item.get(name)
    if raw is None:
        return b""
    if jsonx.kind(raw) == "string":
        return jsonx.unquoted(raw)
    return b"\\n\\n".join(text for _, part in item.children(name) if (text := part.escaped("text")))


def _call(kind: str, item: Fields, raw: Raw) -> CallPart:
    if kind == "local_shell_call":  # D26: what the client replays stays as a function call
        action = item.get("action")
        arguments = bytes(action) if action is not None and jsonx.kind(action) == "object" else b"{}"
        return CallPart(_call_id(item), "local_shell", arguments, quoted=False)
    if kind == "custom_tool_call":
        name = item.require_string("name", "the tool's name")
        return CallPart(
            _call_id(item), name, item.escaped("input") or b"", custom=True, namespace=item.string("namespace")
        )
    if kind == "tool_search_call":
        source = item.get("arguments")
        if source is not None and jsonx.kind(source) == "object":
            return CallPart(_call_id(item), "tool_search", bytes(source), quoted=False)
        return CallPart(_call_id(item), "tool_search", item.escaped("arguments") or b"{}")
    name = item.require_string("name", "the function's name")
    arguments = item.escaped("arguments")
    if arguments is None:
        raise item.fault("arguments", "is required: a string that holds a JSON object")
    return CallPart(_call_id(item), name, arguments, namespace=item.string("namespace"), raw=raw)


def _call_id(item: Fields) -> str:
    """What ties a result to its call; older clients name a call by the id of its item."""
    call_id = item.string("call_id") or item.string("id")
    if not call_id:
        raise item.fault("call_id", "is required and must be the call's id")
    return call_id


def _output(kind: str, item: Fields, raw: Raw) -> ResultPart:
    source = item.get("output")
    if kind == "tool_search_output" and source is None:
        tools = item.get("tools")
        text = jsonx.embed(tools) if tools is not None else b""
        return ResultPart(_call_id(item), [TextPart(text)])
    if source is None:
        raise item.fault("output", "is required: a string or an array of parts")
    keep = raw if kind == "function_call_output" else None
    match jsonx.kind(source):
        case "string":
            return ResultPart(_call_id(item), [TextPart(jsonx.unquoted(source))], raw=keep)
        case "array":
            parts: list[Part] = []
            for _, part in item.children("output"):
                parts += _part(part, "user")
            return ResultPart(_call_id(item), parts, raw=keep)
        case "object" if keep is None:
            return ResultPart(_call_id(item), [TextPart(jsonx.embed(source))])
        case _:
            raise item.fault("output", "must be a string or an array of parts")
