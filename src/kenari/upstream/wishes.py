"""What a chat completions request asks of the scripted model: its fields, and the keywords of the last user message."""

import re
from typing import Any, NamedTuple, cast

import msgspec

from kenari.wire import jsonx

KEYWORDS: dict[str, str] = {
    "reasoning": "reasoning",
    "reason": "reasoning",
    "penalaran": "reasoning",
    "nalar": "reasoning",
    "tool": "tool",
    "tools": "tool",
    "alat": "tool",
    "fungsi": "tool",
    "parallel": "parallel",
    "paralel": "parallel",
    "long": "length",
    "length": "length",
    "panjang": "length",
    "terpotong": "length",
    "slow": "slow",
    "lambat": "slow",
    "pelan": "slow",
    "fail": "fail",
    "failure": "fail",
    "gagal": "fail",
    "putus": "fail",
    "error": "error",
    "galat": "error",
    "filter": "filter",
    "saring": "filter",
    "empty": "empty",
    "kosong": "empty",
    "echo": "echo",
    "gema": "echo",
    "fast": "fast",
    "cepat": "fast",
}
"""English and Indonesian words and the wish that each one stands for (docs/first-run.md lists them)."""

LONGEST = 300
"""Characters. Keywords count only in messages up to this long: an agent's long prompts hold any word by chance."""

SLOW_SECONDS = 20.0
"""The pause of `slow` without a number: longer than the default keepalive of 15 s."""
_MOST_SECONDS = 600.0

_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_INDONESIAN = re.compile(
    "apa|siapa|yang|dan|di|ke|dari|ini|itu|saya|aku|kamu|anda|halo|hai|tolong|bagaimana|mengapa|kenapa|dengan|untuk"
    "|selamat|terima|kasih|hitung|coba|buat|jelaskan|penalaran|nalar|alat|fungsi|paralel|panjang|terpotong|lambat"
    "|pelan|gagal|putus|galat|saring|kosong|gema|cepat"
)


class Function(msgspec.Struct, frozen=True):
    """An offered function."""

    name: str = ""
    parameters: Any = None


class OfferedTool(msgspec.Struct, frozen=True):
    """An entry of `tools`."""

    function: Function = Function()


class Message(msgspec.Struct, frozen=True):
    """A message; `content` is a string, parts or null."""

    role: str
    content: Any = None


class ChatRequest(msgspec.Struct, frozen=True):
    """The part of a chat completions request that the scripted model looks at."""

    model: str
    messages: list[Message]
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: Any = None
    response_format: Any = None

    @property
    def cap(self) -> int | None:
        """The output cap in tokens, None when there is none."""
        caps = [cap for cap in (self.max_tokens, self.max_completion_tokens) if cap is not None and cap > 0]
        return min(caps) if caps else None


class Wishes(NamedTuple):
    """What the last user message asks for."""

    said: str
    named: frozenset[str]
    """The wishes of the keywords that were found: the values of KEYWORDS."""
    pause: float
    """Seconds of silence that `slow` asks for, 0 without it."""
    status: int
    """The HTTP status that `error` asks for, 0 without it."""
    indonesian: bool
    pictures: tuple[str, ...] = ()
    """What came beside the text as pictures: the kind and size of each that is held in the request, else `address`."""


_REQUEST = jsonx.decoder(ChatRequest)


def read_request(body: bytes) -> ChatRequest:
    """Raises jsonx.Malformed for a body that is no chat completions request."""
    request = jsonx.read(_REQUEST, body)
    if not request.messages:
        raise jsonx.Malformed("expected at least one message", "messages")
    return request


def read_wishes(messages: list[Message]) -> Wishes:
    """The keywords of the last thing that the user wrote; a number behind `slow` and `error` is theirs."""
    last = next((one for one in reversed(messages) if one.role == "user" and last_text(one)), None)
    said = "" if last is None else last_text(last)
    words: list[str] = _WORD.findall(said.lower()) if len(said) <= LONGEST else []
    named: set[str] = set()
    pause, status = 0.0, 0
    for word, following in zip(words, [*words[1:], ""], strict=False):
        wish = KEYWORDS.get(word)
        if wish is None:
            continue
        named.add(wish)
        number = float(following) if following[:1].isdigit() else None
        if wish == "slow":
            pause = min(SLOW_SECONDS if number is None else number, _MOST_SECONDS)
        elif wish == "error":
            status = int(number) if number is not None and 400 <= number < 600 else 500
    indonesian = sum(_INDONESIAN.fullmatch(word) is not None for word in words) >= (1 if len(words) <= 3 else 2)
    return Wishes(said, frozenset(named), pause, status, indonesian, () if last is None else pictures(last.content))


def texts(content: Any) -> list[str]:
    """The texts of a message's content."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in _parts(content) if isinstance(part.get("text"), str)]


def pictures(content: Any) -> tuple[str, ...]:
    """What a message's content holds as pictures, each in two or three words: `image/png, 77 bytes`."""
    shown: list[str] = []
    for part in _parts(content):
        named = part.get("image_url")
        address = cast("dict[str, Any]", named).get("url") if isinstance(named, dict) else None
        if not isinstance(address, str):
            continue
        head, _, data = address.partition(";base64,")
        held = len(data) * 3 // 4 - data[-2:].count("=")
        shown.append(f"{head.removeprefix('data:')}, {held} bytes" if data else "address")
    return tuple(shown)


def _parts(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return []
    return [cast("dict[str, Any]", part) for part in cast("list[Any]", content) if isinstance(part, dict)]


def last_text(message: Message) -> str:
    """The last text of a message: agents put their own notes before what the person typed."""
    found = [text.strip() for text in texts(message.content) if text.strip()]
    return found[-1] if found else ""
