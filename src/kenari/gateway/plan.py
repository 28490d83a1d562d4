"""Which candidates a request tries, in order. Pure: model and providers in, plan out."""

from collections.abc import Mapping

import msgspec

from kenari.catalog.models import Model
from kenari.core.ids import Envelopes, maker_of
from kenari.dialects.base import Dialect
from kenari.dialects.fit import Target
from kenari.dialects.registry import DIALECTS
from kenari.providers.base import Provider, endpoint, sign


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A target with one provider key (M2), and all of a call that no request changes.

    `signed` are the header lines for a client that names no betas.
    """

    id: str
    provider: Provider
    dialect: Dialect
    key: str
    target: Target
    url: str
    scheme: str
    signed: bytes


class Plan(msgspec.Struct, frozen=True):
    """A model's candidates in order."""

    model: Model
    candidates: tuple[Candidate, ...]
    raw_signatures: bool
    """All candidates are one maker that speaks Messages: then its signatures travel raw (D5)."""


def make_plan(model: Model, providers: Mapping[str, Provider], envelopes: Envelopes) -> Plan:
    """The model's targets in the order of the configuration, each with each key of its provider."""
    pairs = [(providers[ref.provider], ref.model) for ref in model.targets]
    makers = {maker_of(provider.dialect, provider.name, name) for provider, name in pairs}
    raw = len(makers) == 1 and pairs[0][0].dialect == "messages"
    candidates: list[Candidate] = []
    for provider, name in pairs:
        target = Target(
            dialect=provider.dialect,
            model=name,
            profile=provider.profile,
            maker=maker_of(provider.dialect, provider.name, name),
            envelopes=envelopes,
            raw_signatures=raw,
            reasoning=model.reasoning,
            vision=model.vision,
            max_output=model.max_output_tokens,
            custom_tools=model.custom_tools,
        )
        dialect = DIALECTS[provider.dialect]
        candidates += [
            Candidate(
                id=f"{provider.name}/{name}",
                provider=provider,
                dialect=dialect,
                key=key,
                target=target,
                url=endpoint(provider, dialect.upstream_path),
                scheme=provider.base_url.partition(":")[0],
                signed=sign(provider, key, {}, ""),
            )
            for key in provider.keys or ("",)
        ]
    return Plan(model, tuple(candidates), raw)


def headers_for(candidate: Candidate, client_headers: Mapping[bytes, bytes], origin: str) -> bytes:
    """The header lines of a call; only allowed betas of a Messages client make a difference (F4)."""
    if b"anthropic-beta" in client_headers and candidate.provider.profile.betas:
        return sign(candidate.provider, candidate.key, client_headers, origin)
    return candidate.signed
