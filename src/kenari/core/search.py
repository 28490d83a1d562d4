"""What a search of the web, or of the operator's own documents, brings."""

from collections.abc import Awaitable
from typing import Protocol

import msgspec


class Hit(msgspec.Struct, frozen=True):
    """One found page: its address, its title and the piece of its text that fits."""

    url: str
    title: str
    text: str


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for: at most `limit` hits, on these domains only where there are any, on the blocked ones never."""

    text: str
    limit: int = 5
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


class SearchError(Exception):
    """The search backend failed. `message` names no key and no address of ours."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Search(Protocol):
    """A search backend."""

    def search(self, query: Query) -> Awaitable[list[Hit]]:
        """The best hits first. Raises SearchError."""
        ...
