"""The models that can be asked for, and their list in the two shapes of M1."""

from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from kenari.core.errors import KenariError, bad_request
from kenari.core.request import EFFORTS
from kenari.wire import jsonx

Kind: TypeAlias = Literal["chat", "embedding", "image", "speech", "transcription"]
ENDPOINTS: dict[str, str] = {
    "chat": "/v1/chat/completions, /v1/messages or /v1/responses",
    "embedding": "/v1/embeddings",
    "image": "/v1/images/generations",
    "speech": "/v1/audio/speech",
    "transcription": "/v1/audio/transcriptions",
}
CREATED = 1796000000
"""Unix seconds shown for every model: the catalogue does not know when a model was made."""


class TargetRef(msgspec.Struct, frozen=True):
    """A provider's model: the provider's name in the configuration, and the model as that provider calls it."""

    provider: str
    model: str

    @property
    def id(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.model}"


class Price(msgspec.Struct, frozen=True):
    """Prices per million tokens, decimal strings in the configured currency; None where none was given."""

    input: str
    output: str
    cache_read: str | None = None
    cache_write: str | None = None
    cache_write_1h: str | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue. None for `reasoning` and `vision` means unknown: passed through."""

    id: str
    targets: tuple[TargetRef, ...]
    kind: Kind = "chat"
    reasoning: bool | None = None
    vision: bool | None = None
    context_window: int | None = None
    max_output_tokens: int = 65536
    access: Literal["public", "subscribers"] = "public"
    price: Price | None = None
    aliases: tuple[str, ...] = ()
    custom_tools: bool = False


class Catalog:
    """Looks models up by id, alias or route name. Immutable."""

    def __init__(self, models: dict[str, Model], routes: dict[str, tuple[str, ...]]) -> None:
        self._models = models
        self._names = {alias: model for model in models.values() for alias in model.aliases} | models
        self._routes = routes
        for name, members in routes.items():
            every = [target for member in members for target in self._names[member].targets]
            targets = tuple(dict.fromkeys(every))  # each once in a request (M2)
            first = self._names[members[0]]
            self._names.setdefault(name, msgspec.structs.replace(first, id=name, targets=targets, aliases=()))

    def chat_model(self, name: str) -> Model:
        """The chat model of this name. Raises model_not_found, or the 400 that names the right endpoint (S173)."""
        model = self._names.get(name)
        if model is None:
            raise KenariError("model_not_found", f"there is no model {_shown(name)}. see GET /v1/models", "model")
        if model.kind != "chat":
            raise bad_request(f"{_shown(name)} is no chat model. send it to {ENDPOINTS[model.kind]}", "model")
        return model

    def list_body(self, anthropic: bool) -> bytes:
        """`GET /v1/models`."""
        names = [*self._models, *(name for name in self._routes if name not in self._models)]
        data = [_entry(self._names[name], anthropic) for name in names]
        if not anthropic:
            return jsonx.encode({"object": "list", "data": data})
        first, last = (names[0], names[-1]) if names else (None, None)
        return jsonx.encode({"data": data, "has_more": False, "first_id": first, "last_id": last})

    def model_body(self, name: str, anthropic: bool) -> bytes:
        """`GET /v1/models/{id}`."""
        model = self._names.get(name)
        if model is None:
            raise KenariError("model_not_found", f"there is no model {_shown(name)}. see GET /v1/models", "model")
        return jsonx.encode(_entry(model, anthropic))


def _entry(model: Model, anthropic: bool) -> dict[str, Any]:
    modalities = ["text", "image"] if model.vision else ["text"]
    more: dict[str, Any] = {
        "kind": model.kind,
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
        "pricing": _pricing(model.price),
        "input_modalities": modalities,
        "efforts": list(EFFORTS) if model.reasoning else [],
        "access": model.access,
    }
    if anthropic:
        created = datetime.fromtimestamp(CREATED, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": "model", "id": model.id, "display_name": model.id, "created_at": created} | more
    return {"id": model.id, "object": "model", "created": CREATED, "owned_by": "kenari"} | more


def _pricing(price: Price | None) -> dict[str, str | None] | None:
    """The four prices, and the one of writes for an hour where it has one of its own."""
    if price is None:
        return None
    shown: dict[str, str | None] = msgspec.structs.asdict(price)
    if price.cache_write_1h is None:
        del shown["cache_write_1h"]
    return shown


def _shown(name: str) -> str:
    return repr("".join(char if char.isprintable() else "?" for char in name[:100]))
