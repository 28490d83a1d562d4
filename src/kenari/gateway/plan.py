"""Which candidates a request tries, in order. Pure: model and providers in, list out."""

from collections.abc import Mapping

import msgspec

from kenari.catalog.models import Model
from kenari.core.ids import maker_of
from kenari.providers.base import Provider


class Candidate(msgspec.Struct, frozen=True):
    """A target with one provider key (M2)."""

    provider: Provider
    model: str
    key: str

    @property
    def id(self) -> str:
        """`provider/model`, as the log names it."""
        return f"{self.provider.name}/{self.model}"

    @property
    def maker(self) -> str:
        """Whose proofs this candidate issues and accepts (D5)."""
        return maker_of(self.provider.dialect, self.provider.name, self.model)


def plan(model: Model, providers: Mapping[str, Provider]) -> list[Candidate]:
    """The model's targets in the order of the configuration, each with each key of its provider."""
    out: list[Candidate] = []
    for target in model.targets:
        provider = providers[target.provider]
        out += [Candidate(provider, target.model, key) for key in provider.keys or ("",)]
    return out


def one_maker(candidates: list[Candidate]) -> bool:
    """Whether all candidates are one maker that speaks Messages: then its signatures travel raw (D5)."""
    makers = {candidate.maker for candidate in candidates}
    return len(makers) == 1 and candidates[0].provider.dialect == "messages"
