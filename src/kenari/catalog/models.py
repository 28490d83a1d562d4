"""The models that can be asked for: what each is, and what a name stands for."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from kenari.core.errors import KenariError, bad_request
from kenari.core.request import EFFORTS, Effort

Kind: TypeAlias = Literal["chat", "embedding", "image", "speech", "transcription"]
Modality: TypeAlias = Literal["text", "image", "audio", "file"]
Access: TypeAlias = Literal["public", "subscribers"]
Policy: TypeAlias = Literal["order", "weighted", "cheapest", "fastest", "sticky"]
ENDPOINTS: dict[str, str] = {
    "chat": "/v1/chat/completions, /v1/messages or /v1/responses",
    "embedding": "/v1/embeddings",
    "image": "/v1/images/generations",
    "speech": "/v1/audio/speech",
    "transcription": "/v1/audio/transcriptions",
}
FREE = ":free"
"""The end of a model's id that promises a price of zero (S162)."""
BYOK = "byok/"
"""The beginning of an id that names a provider of the configuration and a model of it, paid with the caller's key."""


class TargetRef(msgspec.Struct, frozen=True):
    """A provider's model: the provider's name in the configuration, and the model as that provider calls it."""

    provider: str
    model: str

    @property
    def id(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.model}"


class Price(msgspec.Struct, frozen=True):
    """Prices per million tokens, decimal strings in the configured currency; None where none was given. Models of other
    kinds may be paid by the image, the character or the second instead, or as well."""

    input: str = "0"
    output: str = "0"
    cache_read: str | None = None
    cache_write: str | None = None
    cache_write_1h: str | None = None
    image: str | None = None
    """For one image."""
    character: str | None = None
    """For a million characters of speech."""
    second: str | None = None
    """For one second of audio."""


NOTHING = Price(cache_read="0", cache_write="0")
"""The price of what costs nothing: every account's key may use it."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue. None for `reasoning` and `vision` means unknown: passed through.

    `efforts` are the levels that this model knows where they are other than its provider's; `modalities` what it reads
    where that is more than `vision` says.
    """

    id: str
    targets: tuple[TargetRef, ...]
    kind: Kind = "chat"
    reasoning: bool | None = None
    efforts: tuple[Effort, ...] | None = None
    vision: bool | None = None
    modalities: tuple[Modality, ...] | None = None
    context_window: int | None = None
    max_output_tokens: int = 65536
    access: Access = "public"
    price: Price | None = None
    aliases: tuple[str, ...] = ()
    custom_tools: bool = False

    @property
    def inputs(self) -> tuple[Modality, ...]:
        """The modalities of its input."""
        if self.modalities is not None:
            return self.modalities
        if self.kind == "transcription":
            return ("audio",)
        return ("text", "image") if self.vision else ("text",)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The modalities of its output."""
        return {"image": ("image",), "speech": ("audio",), "embedding": ("embedding",)}.get(self.kind, ("text",))

    @property
    def levels(self) -> tuple[Effort, ...]:
        """The efforts that can be asked for; none of a model that is not known to reason."""
        if self.efforts is not None:
            return self.efforts
        return EFFORTS if self.reasoning else ()


class Route(msgspec.Struct, frozen=True):
    """A name for models in order, each with a weight, and the policy that chooses among them (M2).

    `deadline` is how many seconds may pass until the first content, None for the server's; `hedge` starts a second
    candidate when the first is later than it mostly is.
    """

    models: tuple[str, ...]
    weights: tuple[int, ...] = ()
    policy: Policy = "order"
    deadline: float | None = None
    hedge: bool = False


class Member(msgspec.Struct, frozen=True):
    """A model as a member of what a name stands for."""

    model: Model
    weight: int = 1


class Entry(msgspec.Struct, frozen=True):
    """What a name stands for. `model` is the model itself; for a route the one that describes its members together."""

    model: Model
    members: tuple[Member, ...]
    policy: Policy = "order"
    deadline: float | None = None
    hedge: bool = False

    @property
    def id(self) -> str:
        """The name in the catalogue."""
        return self.model.id


class Catalog:
    """Looks models up by id, alias or route name. Immutable."""

    def __init__(self, models: dict[str, Model], routes: dict[str, Route]) -> None:
        self._entries = {name: Entry(model, (Member(model),)) for name, model in models.items()}
        self._names: dict[str, Entry] = {}
        for entry in self._entries.values():
            self._names |= dict.fromkeys(entry.model.aliases, entry)
        self._names |= self._entries
        for name, route in routes.items():
            if name not in self._names:
                self._names[name] = self._entries[name] = self._route(name, route)

    def _route(self, name: str, route: Route) -> Entry:
        weights = route.weights or (1,) * len(route.models)
        members: dict[str, Member] = {}
        for member, weight in zip(route.models, weights, strict=True):
            model = self._names[member].model
            before = members.get(model.id)
            members[model.id] = Member(model, weight + (before.weight if before else 0))
        each = tuple(members.values())
        described = describe(name, tuple(member.model for member in each))
        return Entry(described, each, route.policy, route.deadline, route.hedge)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that can be asked for, in order: models, then routes."""
        return tuple(self._entries.values())

    def entry(self, name: str) -> Entry:
        """What a name stands for. Raises model_not_found."""
        entry = self._names.get(name)
        if entry is None:
            raise not_there(name)
        return entry

    def entry_of(self, name: str, kind: Kind) -> Entry:
        """The same for an endpoint of one kind. Raises the 400 that names the right endpoint too (S173)."""
        entry = self.entry(name)
        if entry.model.kind != kind:
            raise wrong_kind(name, entry.model.kind, kind)
        return entry


def not_there(name: str) -> KenariError:
    """The 404 of a name that stands for nothing, or for nothing that this key may see."""
    return KenariError("model_not_found", f"there is no model {_shown(name)}. see GET /v1/models", "model")


def wrong_kind(name: str, kind: Kind, wanted: Kind) -> KenariError:
    """The 400 of a model at an endpoint of another kind; it names the endpoint to use (S173)."""
    word = {"embedding": "an embedding", "image": "an image"}.get(wanted, f"a {wanted}")
    what = "no chat model" if wanted == "chat" else f"not {word} model"
    return bad_request(f"{_shown(name)} is {what}. send it to {ENDPOINTS[kind]}", "model")


def describe(name: str, members: tuple[Model, ...]) -> Model:
    """A route as a model: the abilities of any member, the caps that hold for every one, the dearest price of each class.

    So what is said of a route holds whichever member answers, and a request that only some can serve reaches those.
    """
    targets = tuple(dict.fromkeys(target for model in members for target in model.targets))  # each once (M2)
    windows = [model.context_window for model in members if model.context_window is not None]
    levels = {level for model in members for level in model.levels}
    inputs = {modality for model in members for modality in model.inputs}
    order: tuple[Modality, ...] = ("text", "image", "audio", "file")
    return Model(
        id=name,
        targets=targets,
        kind=members[0].kind,
        reasoning=_any(model.reasoning for model in members),
        efforts=tuple(level for level in EFFORTS if level in levels),
        vision=_any(model.vision for model in members),
        modalities=tuple(modality for modality in order if modality in inputs),
        context_window=min(windows, default=None),
        max_output_tokens=min(model.max_output_tokens for model in members),
        access="subscribers" if any(model.access == "subscribers" for model in members) else "public",
        price=_dearest([model.price for model in members]),
        custom_tools=any(model.custom_tools for model in members),
    )


def _any(flags: Iterable[bool | None]) -> bool | None:
    """True when one is, False when all are, else unknown."""
    known = list(flags)
    if True in known:
        return True
    return None if None in known else False


def _dearest(prices: list[Price | None]) -> Price | None:
    """The highest price of each class; None when a member has none. A class without a price costs what input costs."""
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return None

    def top(amounts: Iterable[str]) -> str:
        return max(amounts, key=Decimal)

    reads = any(price.cache_read is not None for price in known)
    writes = any(price.cache_write is not None for price in known)
    return Price(
        input=top(price.input for price in known),
        output=top(price.output for price in known),
        cache_read=top(price.cache_read or price.input for price in known) if reads else None,
        cache_write=top(price.cache_write or price.input for price in known) if writes else None,
        cache_write_1h=_top([price.cache_write_1h for price in known]),
        image=_top([price.image for price in known]),
        character=_top([price.character for price in known]),
        second=_top([price.second for price in known]),
    )


def _top(amounts: list[str | None]) -> str | None:
    return max((amount for amount in amounts if amount is not None), key=Decimal, default=None)


def _shown(name: str) -> str:
    return repr("".join(char if char.isprintable() else "?" for char in name[:100]))
