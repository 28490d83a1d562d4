"""Answers on their way between two processes: each end may ask for an answer that the other one makes, or can get.

The bytes go as they come; a client that reads too slowly, or goes, is told to the process that makes the answer, as if it
were its own client (gateway.repeats.Shared). When the other end is gone, its answers break off and its clients have gone.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from kenari.core.ports import Outlet, Repeat, Share, Watcher
from kenari.keeper.words import Attach, Piece, Relayed, Sign, Word

PATIENCE = 5.0
"""Seconds until the other end has to say whether there is an answer."""


class Lent:
    """A client at the other end, as an outlet for an answer that is made at this one."""

    def __init__(self, number: int, say: Callable[[Word], None], over: Callable[[], object]) -> None:
        self.gone = False
        self.watcher: Watcher | None = None
        self._number, self._say, self._over = number, say, over
        self._ended = self._told = False

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer."""
        self._last(Piece(self._number, "answer", status, headers, body))

    def begin(self, status: int, headers: bytes) -> None:
        """The head of a stream."""
        self._pass(Piece(self._number, "begin", status, headers))

    def write(self, data: bytes) -> None:
        """The next bytes of a stream."""
        self._pass(Piece(self._number, "write", data=data))

    def end(self) -> None:
        """The end of a stream."""
        self._last(Piece(self._number, "end"))

    def abort(self) -> None:
        """It breaks off."""
        self._last(Piece(self._number, "abort"))

    def heard(self, kind: str) -> None:
        """What the client does."""
        watcher = self.watcher
        if kind == "gone" and not self.gone:
            self.gone = True
            self._over()
            if watcher is not None:
                watcher.on_gone()
        elif watcher is not None and kind == "pause":
            watcher.on_pause()
        elif watcher is not None and kind == "resume":
            watcher.on_resume()

    def tell(self) -> None:
        """Say that there is an answer: the first word of it."""
        if not self._told:
            self._told = True
            self._say(Piece(self._number, "here"))

    def _pass(self, piece: Piece) -> None:
        if not self.gone and not self._ended:
            self.tell()
            self._say(piece)

    def _last(self, piece: Piece) -> None:
        self._pass(piece)
        if not self._ended:
            self._ended = True
            self._over()


class _Asked:
    """A client at this end that gets its answer from the other one."""

    def __init__(self, number: int, outlet: Outlet, say: Callable[[Word], None], over: Callable[[], object]) -> None:
        self.there: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._number, self._outlet, self._say, self._over = number, outlet, say, over

    def take(self, piece: Piece) -> None:
        """A piece of the answer."""
        outlet = self._outlet
        if not self.there.done():
            if piece.kind == "here":
                outlet.watcher = self
            else:
                self._over()
            self.there.set_result(piece.kind == "here")
            return
        match piece.kind:
            case "answer":
                self._over()
                outlet.answer(piece.status, piece.head, piece.data)
            case "begin":
                outlet.begin(piece.status, piece.head)
            case "write":
                outlet.write(piece.data)
            case "end":
                self._over()
                outlet.end()
            case "abort":
                self.broken()
            case _:
                pass

    def broken(self) -> None:
        """Nothing more will come."""
        self._over()
        if not self.there.done():
            self.there.set_result(False)
        else:
            self._outlet.abort()

    # -- what happens to the client (core.ports.Watcher)

    def on_gone(self) -> None:
        """It has gone."""
        self._say(Sign(self._number, "gone"))
        self.broken()

    def on_pause(self) -> None:
        """It reads too slowly."""
        self._say(Sign(self._number, "pause"))

    def on_resume(self) -> None:
        """It reads again."""
        self._say(Sign(self._number, "resume"))


class Relay:
    """One end. `say` reaches the other end, which hears it in `hear`; `share` answers what it asks for."""

    def __init__(self, say: Callable[[Word], None], share: Share) -> None:
        self._say, self._share = say, share
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        self._lent: dict[int, Lent] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """An answer is on its way."""
        return bool(self._asked or self._lent)

    async def ask(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        """Ask the other end for an answer; whether it is under way now."""
        self._number = number = self._number + 1
        asked = self._asked[number] = _Asked(number, outlet, self._say, partial(self._asked.pop, number, None))
        self._say(Attach(number, account, repeat))
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(asked.there)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._say(Sign(number, "gone"))
            asked.broken()
            if isinstance(error, TimeoutError):
                return False
            raise

    def hear(self, word: Relayed) -> None:
        """What the other end says."""
        if isinstance(word, Attach):
            lent = Lent(word.number, self._say, partial(self._lent.pop, word.number, None))
            self._lent[word.number] = lent
            task = asyncio.get_running_loop().create_task(self._lend(word, lent))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(word, Piece):
            asked = self._asked.get(word.number)
            if asked is not None:
                asked.take(word)
        else:
            lent = self._lent.get(word.number)
            if lent is not None:
                lent.heard(word.kind)

    def close(self) -> None:
        """The other end is gone."""
        for asked in tuple(self._asked.values()):
            asked.broken()
        for lent in tuple(self._lent.values()):
            lent.heard("gone")

    def alive(self) -> None:
        """Tell the other end of everything under way that this one is there."""
        for number in self._asked:
            self._say(Sign(number, "alive"))
        for number in self._lent:
            self._say(Piece(number, "alive"))

    async def _lend(self, word: Attach, lent: Lent) -> None:
        there = False
        try:
            there = await self._share(word.account, word.repeat, lent)
        finally:
            if there:
                lent.tell()
            else:
                self._lent.pop(word.number, None)
                self._say(Piece(word.number, "none"))
