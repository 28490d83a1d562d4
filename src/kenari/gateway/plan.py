"""Which candidates a request may be tried on. Pure: what a name stands for and the providers in, plan out."""

from collections.abc import Mapping

import msgspec

from kenari.catalog.models import Entry, Model
from kenari.core.errors import KenariError
from kenari.core.ids import Envelopes, maker_of
from kenari.core.profile import Profile
from kenari.dialects.base import Dialect
from kenari.dialects.failures import UNPAID
from kenari.dialects.fit import Target
from kenari.dialects.registry import DIALECTS
from kenari.providers.base import Provider, endpoint, sign


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A target with one provider key (M2), and all of a call that no request changes.

    `id` is the target's, `name` tells apart its keys too (`provider/model#2`). `model` is the member of the catalogue
    that it serves, whose price holds; `weight` the member's. `signed` are the header lines for a client that names no
    betas. `own` is true when the key is the caller's own (BYOK).
    """

    id: str
    name: str
    provider: Provider
    dialect: Dialect
    key: str
    target: Target
    url: str
    scheme: str
    signed: bytes
    model: Model
    weight: int = 1
    own: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What a name stands for, with its candidates in the order of the configuration."""

    entry: Entry
    candidates: tuple[Candidate, ...]
    raw_signatures: bool
    """All candidates are one maker that speaks Messages: then its signatures travel raw (D5)."""

    @property
    def model(self) -> Model:
        """The model that describes it."""
        return self.entry.model


def make_plan(
    entry: Entry, providers: Mapping[str, Provider], envelopes: Envelopes, own_key: str | None = None
) -> Plan:
    """Each member's targets in the order of the configuration, each with each key of its provider, each once (M2).

    `own_key` is the caller's key for the providers instead.
    """
    pairs = [(providers[ref.provider], ref.model, member) for member in entry.members for ref in member.model.targets]
    makers = {maker_of(provider.dialect, provider.name, name) for provider, name, _ in pairs}
    raw = len(makers) == 1 and pairs[0][0].dialect == "messages"
    candidates: dict[str, Candidate] = {}
    for provider, name, member in pairs:
        model = member.model
        target = Target(
            dialect=provider.dialect,
            model=name,
            profile=profile_of(provider, model),
            maker=maker_of(provider.dialect, provider.name, name),
            envelopes=envelopes,
            raw_signatures=raw,
            reasoning=model.reasoning,
            vision=model.vision,
            max_output=model.max_output_tokens,
            custom_tools=model.custom_tools,
        )
        dialect = DIALECTS[provider.dialect]
        keys = provider.keys or ("",) if own_key is None else (own_key,)
        for number, key in enumerate(keys, 1):
            called = f"{provider.name}/{name}"
            full = called if len(keys) == 1 else f"{called}#{number}"
            candidates.setdefault(
                full,
                Candidate(
                    id=called,
                    name=full,
                    provider=provider,
                    dialect=dialect,
                    key=key,
                    target=target,
                    url=endpoint(provider, dialect.upstream_path),
                    scheme=provider.base_url.partition(":")[0],
                    signed=sign(provider, key, {}, ""),
                    model=model,
                    weight=member.weight,
                    own=own_key is not None,
                ),
            )
    return Plan(entry, tuple(candidates.values()), raw)


def profile_of(provider: Provider, model: Model) -> Profile:
    """The provider's quirks, with the efforts of the model where it names its own."""
    if model.efforts is None:
        return provider.profile
    return msgspec.structs.replace(provider.profile, efforts=model.efforts)


def headers_for(candidate: Candidate, client_headers: Mapping[bytes, bytes], origin: str) -> bytes:
    """The header lines of a call; only allowed betas of a Messages client make a difference (F4)."""
    if b"anthropic-beta" in client_headers and candidate.provider.profile.betas:
        return sign(candidate.provider, candidate.key, client_headers, origin)
    return candidate.signed


def own_refused(candidate: Candidate, status: int, error: KenariError | None) -> KenariError | None:
    """An attempt's error; where the provider refused the caller's own key, or wants to be paid for it, the caller is told
    so (E3)."""
    if not candidate.own or error is None or not (status in (401, 403) or error.message == UNPAID):
        return error
    name = candidate.provider.name
    if error.message == UNPAID:
        words = f"{name} wants to be paid for your own key. top up your account there; sending again will not help"
        return KenariError("upstream_error", words, should_retry=False)
    words = f"{name} refused your own key. store another one with PUT /v1/byok/{name}"
    return KenariError("upstream_error", words, should_retry=False)
