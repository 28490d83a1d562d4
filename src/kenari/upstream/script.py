"""The scripted model: a chat completions request -> what a provider would answer, with its timing. Pure.

It is not a model and says so. The same request gives the same bytes; only `created` is an argument.
"""

import hashlib
import re
from typing import Any, Literal, NamedTuple, cast

from kenari.upstream.sample import sample_object, sample_value
from kenari.upstream.wishes import ChatRequest, OfferedTool, Wishes, read_request, read_wishes, texts
from kenari.wire import jsonx
from kenari.wire.sse import data_frame

PACE = 0.02
"""Seconds between two pieces."""
CUT = 64
"""Tokens after which a `long` answer is cut when the request's cap is larger than LONGEST_CUT."""
LONGEST_CUT = 512
_QUOTED = 400
_PIECE = re.compile(r"\s*\S+\s*$|\s*\S+")
_JSON = {b"content-type": b"application/json"}
_STREAM = {b"content-type": b"text/event-stream"}


class Step(NamedTuple):
    """Bytes of the body, and the seconds of silence before them."""

    delay: float
    data: bytes


class Script(NamedTuple):
    """One answer. `broken`: the connection is lost after the last step instead of ending."""

    status: int
    headers: dict[bytes, bytes]
    steps: list[Step]
    broken: bool = False


class Piece(NamedTuple):
    """A token of the answer, or the opening of a call (which is none)."""

    kind: Literal["reasoning_content", "content", "call", "arguments"]
    text: str
    call: int = 0
    id: str = ""


class Part(NamedTuple):
    """All that the model will say, and why it ends."""

    pieces: list[Piece]
    finish: str


def perform(body: bytes, created: int) -> Script:
    """The answer to a request body; `created` is Unix seconds."""
    try:
        request = read_request(body)
    except jsonx.Malformed as error:
        where = f" ({error.path})" if error.path else ""
        return refusal(400, f"the scripted provider cannot read this request: {error}{where}")
    wishes = read_wishes(request.messages)
    if wishes.status:
        return refusal(wishes.status, f"the scripted provider was asked to answer with an error {wishes.status}")
    ident = hashlib.blake2b(body, digest_size=8).hexdigest()
    part = _part(request, wishes, ident)
    envelope = {"id": f"chatcmpl-{ident}", "created": created, "model": request.model}
    usage = _usage(request, part)
    if request.stream:
        return _streamed(envelope, part, usage, wishes)
    return _plain(envelope, part, usage, wishes)


def refusal(status: int, message: str) -> Script:
    """An error answer, as a chat provider gives it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    headers = _JSON | ({b"retry-after": b"2"} if status in (429, 503) else {})
    body = jsonx.encode({"error": {"message": message, "type": kind, "param": None, "code": None}})
    return Script(status, headers, [Step(0.0, body)])


# -- what it says


def _part(request: ChatRequest, wishes: Wishes, ident: str) -> Part:
    pieces: list[Piece] = []
    if "reasoning" in wishes.named:
        pieces += _pieces("reasoning_content", _words(wishes, *_REASONING))
    results = _results(request)
    calls = [] if results else _calls(request, wishes, ident)
    if calls:
        pieces += calls
    elif results:
        pieces += _pieces("content", _quote(wishes, results))
    else:
        pieces += _pieces("content", _answer(request, wishes))
    cap = request.cap
    if "length" in wishes.named:
        cap = cap if cap is not None and cap <= LONGEST_CUT else CUT
    kept = _cut(pieces, cap)
    if len(kept) < len(pieces):
        return Part(kept, "length")
    if "filter" in wishes.named:
        return Part(kept, "content_filter")
    return Part(kept, "tool_calls" if calls else "stop")


def _answer(request: ChatRequest, wishes: Wishes) -> str:
    wanted = _wanted_json(request.response_format)
    if wanted is not None:
        return jsonx.encode(wanted).decode()
    if "echo" in wishes.named:
        return wishes.said
    if "length" in wishes.named:
        line = _words(wishes, "This line goes on and on, it is number", "Baris ini terus berlanjut, ini nomor")
        return " ".join(f"{line} {number}." for number in range(1, LONGEST_CUT))
    if "tool" in wishes.named or "parallel" in wishes.named:
        return _words(wishes, *_NO_TOOLS)
    said = wishes.said[:_QUOTED]
    seen = _words(wishes, *_SEEN).format("; ".join(wishes.pictures)) if wishes.pictures else ""
    return _words(wishes, *_PLAIN) + seen + (_words(wishes, *_SAID).format(said) if said else "")


def _wanted_json(form: Any) -> Any:
    """The value that answers a `response_format` of JSON, None when plain text is wanted."""
    if not isinstance(form, dict):
        return None
    fields = cast("dict[str, Any]", form)
    if fields.get("type") == "json_schema":
        named = fields.get("json_schema")
        return sample_value(cast("dict[str, Any]", named).get("schema")) if isinstance(named, dict) else {}
    return {"model": "demo/scripted", "scripted": True} if fields.get("type") == "json_object" else None


def _results(request: ChatRequest) -> list[str]:
    """The texts of the tool results that the conversation ends with."""
    found: list[str] = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        found.append("\n".join(texts(message.content)))
    return found[::-1]


def _quote(wishes: Wishes, results: list[str]) -> str:
    lead = _words(wishes, *_RESULT)
    return " ".join(f'{lead} "{result[:_QUOTED]}".' for result in results) + _words(wishes, *_REPEATED)


def _calls(request: ChatRequest, wishes: Wishes, ident: str) -> list[Piece]:
    out: list[Piece] = []
    for index, tool in enumerate(_chosen(request, wishes)):
        arguments = jsonx.encode(sample_object(tool.function.parameters)).decode()
        out.append(Piece("call", tool.function.name, index, f"call_{ident}{index}"))
        out += [Piece("arguments", arguments[at : at + 8], index) for at in range(0, len(arguments), 8)]
    return out


def _chosen(request: ChatRequest, wishes: Wishes) -> list[OfferedTool]:
    """The functions to call: by keyword, or because `tool_choice` asks for it."""
    offered = [tool for tool in request.tools or [] if tool.function.name]
    choice = request.tool_choice
    if choice == "none" or not offered:
        return []
    if isinstance(choice, dict):
        function = cast("dict[str, Any]", choice).get("function")
        name = cast("dict[str, Any]", function).get("name") if isinstance(function, dict) else None
        return [tool for tool in offered if tool.function.name == name][:1]
    if "parallel" in wishes.named:
        return offered[:2] if len(offered) > 1 else offered * 2
    return offered[:1] if "tool" in wishes.named or choice == "required" else []


def _pieces(kind: Literal["reasoning_content", "content"], text: str) -> list[Piece]:
    return [Piece(kind, piece) for piece in _PIECE.findall(text)]


def _cut(pieces: list[Piece], cap: int | None) -> list[Piece]:
    """The pieces that fit into `cap` tokens."""
    if cap is None:
        return pieces
    kept: list[Piece] = []
    for piece in pieces:
        if piece.kind != "call":
            if cap == 0:
                break
            cap -= 1
        kept.append(piece)
    return kept


def _usage(request: ChatRequest, part: Part) -> dict[str, Any]:
    """Counts: a word or a piece of arguments is a token, a prompt has one for each four characters."""
    prompt = sum(4 + sum(map(len, texts(message.content))) // 4 for message in request.messages)
    kinds = [piece.kind for piece in part.pieces if piece.kind != "call"]
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": len(kinds),
        "total_tokens": prompt + len(kinds),
    }
    thoughts = kinds.count("reasoning_content")
    if thoughts:
        usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
    return usage


def _words(wishes: Wishes, english: str, indonesian: str) -> str:
    return indonesian if wishes.indonesian else english


# -- how it says it


def _streamed(envelope: dict[str, Any], part: Part, usage: dict[str, Any], wishes: Wishes) -> Script:
    if "empty" in wishes.named:
        return Script(200, _STREAM, [])
    head = {"id": envelope["id"], "object": "chat.completion.chunk", **envelope}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return data_frame(jsonx.encode({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))

    pace = 0.0 if "fast" in wishes.named else PACE
    frames = [chunk(_delta(piece)) for piece in part.pieces]
    opening = chunk({"role": "assistant", "content": ""})
    steps = [Step(0.0, opening)] + [Step(pace, frame) for frame in frames]
    middle = 1 + len(frames) // 2
    if wishes.pause:
        for at in {1, middle}:
            if at < len(steps):
                steps[at] = Step(wishes.pause, steps[at].data)
    if "fail" in wishes.named:
        return Script(200, _STREAM, steps[: max(middle, 2)], broken=True)
    end = chunk({}, part.finish) + data_frame(jsonx.encode({**head, "choices": [], "usage": usage}))
    return Script(200, _STREAM, [*steps, Step(pace, end + data_frame(b"[DONE]"))])


def _delta(piece: Piece) -> dict[str, Any]:
    if piece.kind == "call":
        function = {"name": piece.text, "arguments": ""}
        return {"tool_calls": [{"index": piece.call, "id": piece.id, "type": "function", "function": function}]}
    if piece.kind == "arguments":
        return {"tool_calls": [{"index": piece.call, "function": {"arguments": piece.text}}]}
    return {piece.kind: piece.text}


def _plain(envelope: dict[str, Any], part: Part, usage: dict[str, Any], wishes: Wishes) -> Script:
    message: dict[str, Any] = {"role": "assistant", "content": _joined(part, "content") or None}
    reasoning = _joined(part, "reasoning_content")
    if reasoning:
        message["reasoning_content"] = reasoning
    calls = [piece for piece in part.pieces if piece.kind == "call"]
    if calls:
        message["tool_calls"] = [
            {
                "id": opening.id,
                "type": "function",
                "function": {"name": opening.text, "arguments": _joined(part, "arguments", opening.call)},
            }
            for opening in calls
        ]
    choices = [] if "empty" in wishes.named else [{"index": 0, "message": message, "finish_reason": part.finish}]
    reply = {"id": envelope["id"], "object": "chat.completion", **envelope, "choices": choices, "usage": usage}
    body = jsonx.encode(reply)
    pace = 0.0 if "fast" in wishes.named else PACE
    delay = pace * len(part.pieces) + 2 * wishes.pause
    if "fail" in wishes.named:
        return Script(200, _JSON, [Step(delay, body[: len(body) // 2])], broken=True)
    return Script(200, _JSON, [Step(delay, body)])


def _joined(part: Part, kind: str, call: int = 0) -> str:
    return "".join(piece.text for piece in part.pieces if piece.kind == kind and piece.call == call)


_PLAIN = (
    "This is demo/scripted: a script built into kenari, not a language model. It shows that the gateway works. "
    "Keywords in a short message drive it: reasoning, tool, parallel, long, slow, fail, error, filter, empty, echo, "
    "fast.",
    "Ini demo/scripted: sebuah naskah di dalam kenari, bukan model bahasa. Ia menunjukkan bahwa gerbang ini bekerja. "
    "Kata kunci dalam pesan pendek mengaturnya: penalaran, alat, paralel, panjang, lambat, gagal, galat, saring, "
    "kosong, gema, cepat.",
)
_SEEN = (" With it came as pictures: {}.", " Gambar yang disertakan: {}.")
_SAID = (' You wrote: "{}".', ' Anda menulis: "{}".')
_REASONING = (
    "A script does not think. These words stand where the reasoning of a model would stand.",
    "Sebuah naskah tidak berpikir. Kata-kata ini berdiri di tempat penalaran sebuah model.",
)
_NO_TOOLS = (
    "This is demo/scripted, not a language model. You asked for a tool call, but the request offers no function.",
    "Ini demo/scripted, bukan model bahasa. Anda meminta panggilan alat, tetapi permintaan ini tidak menawarkan "
    "fungsi.",
)
_RESULT = ("The tool answered:", "Alat itu menjawab:")
_REPEATED = (
    " This is demo/scripted, a script: it only repeats what came.",
    " Ini demo/scripted, sebuah naskah: ia hanya mengulang yang datang.",
)
