"""What a client of an endpoint beside chat wants: the model, the body for a provider, and what it will be measured by. Pure."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Raw

from kenari.catalog.models import Kind
from kenari.core.errors import KenariError, bad_request
from kenari.core.usage import estimate_tokens
from kenari.wire import jsonx
from kenari.wire.multipart import BadForm, Part, boundary_of, join, split


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request of one of these endpoints.

    `body` makes the body for the model as a provider calls it. `tokens` is our count of its text, `characters` its
    length, `images` how many are wanted, `seconds` of audio where the file says. `stream` says that events are wanted.
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


class Spot(msgspec.Struct, frozen=True):
    """An endpoint: its kind, and the path below a provider's base address."""

    kind: Kind
    upstream_path: str


SPOTS: dict[str, Spot] = {
    "/v1/embeddings": Spot("embedding", "/embeddings"),
    "/v1/images/generations": Spot("image", "/images/generations"),
    "/v1/audio/speech": Spot("speech", "/audio/speech"),
    "/v1/audio/transcriptions": Spot("transcription", "/audio/transcriptions"),
}
_TEXT_MEMBER: dict[Kind, str] = {"embedding": "input", "image": "prompt", "speech": "input"}
_JSON = b"application/json"
MAX_IMAGES = 100


def read_ask(kind: Kind, content_type: bytes, body: bytes) -> Ask:
    """The request of a client. Raises the 400 that names the field at fault, 415 for another type of body."""
    if kind == "transcription":
        return _read_form(content_type, body)
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
    )


def _read_form(content_type: bytes, body: bytes) -> Ask:
    if not content_type.lower().lstrip().startswith(b"multipart/form-data"):
        raise KenariError(
            "unsupported_media_type", "send the audio as multipart/form-data with the fields file and model"
        )
    try:
        boundary = boundary_of(content_type)
        parts = split(body, boundary)
    except BadForm as error:
        raise bad_request(f"the body is no form: {error}") from None
    fields = {part.name: part for part in parts}
    file, model = fields.get("file"), fields.get("model")
    if file is None or not file.content:
        raise bad_request("file is required: the audio to transcribe", "file")
    if model is None or not model.content.strip():
        raise bad_request("model is required: the id of a model (see GET /v1/models)", "model")
    return Ask(
        kind="transcription",
        model=model.content.decode("utf-8", "replace"),
        content_type=content_type,
        body=lambda name: join([_named(part, name) for part in parts], boundary),
        seconds=wave_seconds(file.content),
        stream=fields["stream"].content.strip() == b"true" if "stream" in fields else False,
    )


def _named(part: Part, model: str) -> Part:
    return Part(part.head, model.encode()) if part.name == "model" and not part.is_file else part


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


def wave_seconds(data: bytes) -> float | None:
    """How long a WAV file plays, None for other formats: its bytes per second stand in its header."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    at, rate = 12, 0
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"fmt ":
            rate = int.from_bytes(data[at + 16 : at + 20], "little")
        elif name == b"data":
            size = min(size, len(data) - at - 8)
            return size / rate if rate else None
        at += 8 + size + size % 2
    return None
