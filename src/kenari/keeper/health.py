"""How candidates fare, shared by the processes of a node: what one has met the others need not meet again (M2).

Whoever serves is a member: it tells what it has met and hears what others tell. With a Valkey server the nodes are members
of each other too (`health_valkey.py`). Nobody waits for anybody: what has not arrived yet is met once more.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from kenari.catalog.health import CLEAN, News, aged

Hears: TypeAlias = Callable[[str, News], None]
"""Hears of a candidate, by its mark."""


class Member(Protocol):
    """One process's way to tell the others."""

    def tell(self, mark: str, news: News) -> None:
        """Let the others know; never waits."""
        ...

    def leave(self) -> None:
        """Hear no more."""
        ...


class SharedHealth(Protocol):
    """Where health is shared."""

    def join(self, hears: Hears) -> Member:
        """Take part; what is known already is heard at once."""
        ...


class HealthBoard:
    """The health that the members of a node share, and what is known for those that come later. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._members: list[_Member] = []
        self._known: dict[str, tuple[News, float]] = {}

    def join(self, hears: Hears) -> Member:
        """Take part; what is known already is heard at once."""
        member = _Member(self, hears)
        self._members.append(member)
        now = self._clock()
        self._known = {mark: (news, at) for mark, (news, at) in self._known.items() if aged(news, now - at) != CLEAN}
        for mark, (news, at) in self._known.items():
            hears(mark, aged(news, now - at))
        return member

    def told(self, teller: "_Member", mark: str, news: News) -> None:
        """A member has told something."""
        if news == CLEAN:
            self._known.pop(mark, None)
        else:
            self._known[mark] = (news, self._clock())
        for member in tuple(self._members):
            if member is not teller:
                member.hears(mark, news)

    def left(self, member: "_Member") -> None:
        """A member hears no more."""
        if member in self._members:
            self._members.remove(member)


class _Member:
    def __init__(self, board: HealthBoard, hears: Hears) -> None:
        self._board, self.hears = board, hears

    def tell(self, mark: str, news: News) -> None:
        self._board.told(self, mark, news)

    def leave(self) -> None:
        self._board.left(self)
