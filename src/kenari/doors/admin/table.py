"""What a route of the management API is: one row, from which both the dispatch and the OpenAPI document are made."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

PREFIX = "/admin/v1"
ID = "^[A-Za-z0-9_.:-]{1,200}$"
"""What a name in a path may look like; what looks otherwise is nowhere."""
_NAME = re.compile(r"\{([a-z_]+)\}")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One call, read: who makes it, the names in its path, its query and its body."""

    actor: str
    path: dict[str, str]
    query: Any = None
    body: Any = None


Act: TypeAlias = Callable[[Any, Asked], Awaitable[Any]]
"""Does what a route is for, with the services that its door was given; the answer's record."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row: `path` is below the prefix, with names in braces. `query`, `body` and `answer` are records; None: there
    is none. `errors` are the codes that it may answer beside those that every route has."""

    method: str
    path: str
    act: Act
    summary: str
    answer: type[msgspec.Struct]
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    status: int = 200
    errors: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names in the path."""
        return _NAME.findall(self.path)


class RouteTable:
    """Finds the route of a method and a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._paths: dict[str, tuple[re.Pattern[str], dict[str, Route]]] = {}
        for route in routes:
            pattern = re.compile(_NAME.sub(rf"(?P<\1>{ID[1:-1]})", PREFIX + route.path))
            self._paths.setdefault(route.path, (pattern, {}))[1][route.method] = route

    def find(self, path: str) -> tuple[Mapping[str, Route], dict[str, str]] | None:
        """The routes of a path by method, and the names in it; None when there is nothing."""
        for pattern, methods in self._paths.values():
            if found := pattern.fullmatch(path):
                return methods, found.groupdict()
        return None
