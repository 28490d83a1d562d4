"""What a client of an endpoint beside chat wants: the model, the body for a provider, and what it will be measured by. Pure."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Raw

from kenari.catalog.models import Kind
from kenari.core.errors import bad_request
from kenari.core.outbound import Stream
from kenari.core.usage import estimate_tokens
from kenari.wire import jsonx


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request of one of these endpoints.

    `body` makes the body for the model as a provider calls it, or `stream_of` one that is still coming. `tokens` is our
    count of its text, `characters` its length, `images` how many are wanted, `seconds` of audio where the file says. `stream`
    says that events are wanted. `size` is the length of the client's body, `seen` what tells it from others.
    """

    kind: Kind
    model: str
    content_type: bytes
    body: Callable[[str], bytes]
    tokens: int = 0
    characters: int = 0
    images: int = 0
    seconds: float | None = None
    stream: bool = False
    size: int = 0
    seen: bytes = b""
    stream_of: Callable[[str], Stream] | None = None


class Spot(msgspec.Struct, frozen=True):
    """An endpoint: its kind, and the path below a provider's base address. `form`: its body is one, and is passed on while it
    comes."""

    kind: Kind
    upstream_path: str
    form: bool = False


SPOTS: dict[str, Spot] = {
    "/v1/embeddings": Spot("embedding", "/embeddings"),
    "/v1/images/generations": Spot("image", "/images/generations"),
    "/v1/audio/speech": Spot("speech", "/audio/speech"),
    "/v1/audio/transcriptions": Spot("transcription", "/audio/transcriptions", form=True),
}
_TEXT_MEMBER: dict[Kind, str] = {"embedding": "input", "image": "prompt", "speech": "input"}
_JSON = b"application/json"
MAX_IMAGES = 100


def read_ask(kind: Kind, body: bytes) -> Ask:
    """The request of a client in JSON. Raises the 400 that names the field at fault."""
    try:
        members = jsonx.members(body)
    except jsonx.Malformed as error:
        raise bad_request(f"the body must be a JSON object: {error}") from None
    name = _TEXT_MEMBER[kind]
    text = _text_of(members.get(name), name, kind)
    stream = jsonx.value(members["stream"]) is True if "stream" in members else False
    if "stream_format" in members:
        stream = jsonx.value(members["stream_format"]) == "sse"
    return Ask(
        kind=kind,
        model=_string(members.get("model"), "model"),
        content_type=_JSON,
        body=lambda model: jsonx.encode(members | {"model": Raw(jsonx.encode(model))}),
        tokens=sum(estimate_tokens(one.encode("utf-8", "replace")) for one in text) if text else _ids(members[name]),
        characters=sum(len(one) for one in text),
        images=_count(members.get("n")) if kind == "image" else 0,
        stream=stream,
        size=len(body),
        seen=body,
    )


def _string(raw: Raw | None, name: str) -> str:
    value = None if raw is None else jsonx.value(raw)
    if not isinstance(value, str) or not value:
        raise bad_request(f"{name} is required: a string", name)
    return value


def _text_of(raw: Raw | None, name: str, kind: Kind) -> list[str]:
    """The texts of a member that is a string; of embeddings a list of them too, [] for lists of token ids."""
    value: Any = None if raw is None else jsonx.value(raw)
    if isinstance(value, str) and value:
        return [value]
    if kind == "embedding" and isinstance(value, list) and value:
        items = cast("list[Any]", value)
        if all(isinstance(one, str) and one for one in items):
            return cast("list[str]", items)
        if all(_is_ids(one) for one in items) or _is_ids(items):
            return []
        raise bad_request("input must be a text, texts, or lists of token ids; none of them empty", name)
    raise bad_request(f"{name} is required: a text that is not empty", name)


def _is_ids(value: Any) -> bool:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return bool(items) and all(isinstance(one, int) and not isinstance(one, bool) for one in items)


def _ids(raw: Raw) -> int:
    value: list[Any] = jsonx.value(raw)
    return sum(len(cast("list[int]", one)) if isinstance(one, list) else 1 for one in value)


def _count(raw: Raw | None) -> int:
    if raw is None or jsonx.is_null(raw):
        return 1
    value = jsonx.value(raw)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_IMAGES:
        raise bad_request(f"n must be a whole number from 1 to {MAX_IMAGES}", "n")
    return value


def wave_seconds(head: bytes, size: int) -> float | None:
    """How long a WAV file of `size` bytes plays by its beginning, None for other formats: its bytes per second stand there."""
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    at, rate = 12, 0
    while at + 8 <= len(head):
        name, length = head[at : at + 4], int.from_bytes(head[at + 4 : at + 8], "little")
        if name == b"fmt ":
            rate = int.from_bytes(head[at + 16 : at + 20], "little")
        elif name == b"data":
            length = min(length, max(0, size - at - 8))
            return length / rate if rate else None
        at += 8 + length + length % 2
    return None
