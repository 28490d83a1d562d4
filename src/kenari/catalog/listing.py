"""`GET /v1/models` and `GET /v1/models/{id}` in the two shapes of M1, as far as a key may see them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from kenari.catalog.models import Catalog, Model, Price, not_there
from kenari.core.caller import Caller
from kenari.wire import jsonx

CREATED = 1796000000
"""Unix seconds shown for every model: the catalogue does not know when a model was made."""
Sees: TypeAlias = Callable[[Model], bool]


def may_use(caller: Caller, name: str) -> bool:
    """Whether a key's scope lets it ask for a name: exactly, or by a pattern with a trailing `*` (A2)."""
    allowed = caller.scope.models
    return not allowed or any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in allowed
    )


def sees(caller: Caller) -> Sees:
    """What a caller is shown: what the key's scope allows, by its id or one of its aliases.

    Models for subscribers are shown to everyone: their `access` says what is missing.
    """
    return lambda model: any(may_use(caller, name) for name in (model.id, *model.aliases))


def list_body(catalog: Catalog, anthropic: bool, sees: Sees) -> bytes:
    """`GET /v1/models`."""
    data = [_shown(entry.model, anthropic) for entry in catalog.entries if sees(entry.model)]
    if not anthropic:
        return jsonx.encode({"object": "list", "data": data})
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return jsonx.encode({"data": data, "has_more": False, "first_id": first, "last_id": last})


def model_body(catalog: Catalog, name: str, anthropic: bool, sees: Sees) -> bytes:
    """`GET /v1/models/{id}`. Raises model_not_found, also for what the key may not see."""
    model = catalog.entry(name).model
    if not sees(model):
        raise not_there(name)
    return jsonx.encode(_shown(model, anthropic))


def _pricing(price: Price | None) -> dict[str, str] | None:
    """The four prices of tokens as they are charged (M1), and those that the model has beside them."""
    if price is None:
        return None
    beside = {"cache_write_1h": price.cache_write_1h}
    beside |= {"image": price.image, "character": price.character, "second": price.second}
    tokens = {"input": price.input, "output": price.output}
    for name, amount in (("cache_read", price.cache_read), ("cache_write", price.cache_write)):
        tokens[name] = price.input if amount is None else amount
    return tokens | {name: amount for name, amount in beside.items() if amount is not None}


def _shown(model: Model, anthropic: bool) -> dict[str, Any]:
    more: dict[str, Any] = {
        "kind": model.kind,
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
        "pricing": _pricing(model.price),
        "input_modalities": model.inputs,
        "output_modalities": model.outputs,
        "efforts": model.levels,
        "access": model.access,
        "aliases": model.aliases,
    }
    if anthropic:
        created = datetime.fromtimestamp(CREATED, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": "model", "id": model.id, "display_name": model.id, "created_at": created} | more
    return {"id": model.id, "object": "model", "created": CREATED, "owned_by": "kenari"} | more
