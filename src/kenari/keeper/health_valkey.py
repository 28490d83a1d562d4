"""Health shared by nodes: each says in a Valkey server what it has met, and hears what others say.

What is wrong with a candidate also stands there for nodes that start later. While the server cannot be reached each node goes
on with its own knowledge, says so once in the log, and comes back by itself. No request ever waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from kenari.catalog.health import CLEAN, News, aged
from kenari.keeper.health import Member, SharedHealth
from kenari.keys.client import make_client

_log = logging.getLogger("kenari.health")

ANSWER_SECONDS = 2.0
RETRY_SECONDS = 2.0
LISTEN_SECONDS = 15.0
"""After so long without a word the server is asked whether it is still there."""
CHANNEL = "kenari:health"
TABLE = "kenari:health:now"
TABLE_SECONDS = 7 * 86400
MAX_KNOWN = 10_000


class Said(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of a candidate; `at` in Unix seconds, for those that read it later."""

    node: str
    mark: str
    news: News
    at: float


class ValkeyHealth:
    """A node's part in the health of all. `node` is its name among them, `wall` gives Unix seconds."""

    def __init__(self, url: str, node: str, wall: Callable[[], float]) -> None:
        """Raises OSError when the client library is not installed or the address is none."""
        self._server, self._failed = make_client(url, ANSWER_SECONDS, health_check_interval=5)
        self._node, self._wall = node, wall
        self._decoder = msgspec.msgpack.Decoder(Said)
        self._saying: dict[str, News] = {}  # the newest of each candidate
        self._wanted = asyncio.Event()
        self._member: Member | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._down = False

    def start(self, shared: SharedHealth) -> None:
        """Take part."""
        self._member = shared.join(self._heard_here)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(work)) for work in (self._speak, self._listen)]

    async def close(self) -> None:
        """Part from the server."""
        if self._member is not None:
            self._member.leave()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.aclose()

    def _heard_here(self, mark: str, news: News) -> None:
        if len(self._saying) < MAX_KNOWN or mark in self._saying:
            self._saying[mark] = news
            self._wanted.set()

    async def _keep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work for ever; a server that fails is tried again."""
        while True:
            try:
                await work()
            except (self._failed, OSError, TimeoutError) as error:
                if not self._down:
                    self._down = True
                    _log.warning("the valkey server of the health cannot be reached (%s)", type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)

    async def _speak(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            saying, self._saying = self._saying, {}
            try:
                await self._say(saying)
            except BaseException:
                self._saying = saying | self._saying
                self._wanted.set()
                raise
            self._down = False

    async def _say(self, saying: dict[str, News]) -> None:
        pipeline = self._server.pipeline(transaction=False)
        for mark, news in saying.items():
            said = msgspec.msgpack.encode(Said(self._node, mark, news, self._wall()))
            if news == CLEAN:
                pipeline.hdel(TABLE, mark)
            else:
                pipeline.hset(TABLE, mark, said)
            pipeline.publish(CHANNEL, said)
        pipeline.expire(TABLE, TABLE_SECONDS)
        await pipeline.execute()

    async def _listen(self) -> None:
        """Hear what is said, and what stands there as soon as nothing more can be missed: whenever the server has taken the
        subscription, which the client library renews by itself when a connection broke."""
        async with self._server.pubsub() as channel:
            await channel.subscribe(CHANNEL)
            while True:
                message = await channel.get_message(timeout=LISTEN_SECONDS)
                if message is None:
                    await self._server.ping()
                elif message["type"] == "message":
                    self._hear(message["data"], later=False)
                elif message["type"] == "subscribe":
                    for said in (await self._server.hvals(TABLE))[:MAX_KNOWN]:
                        self._hear(said, later=True)

    def _hear(self, data: bytes, later: bool) -> None:
        try:
            said = self._decoder.decode(data)
        except msgspec.MsgspecError:  # of another version
            return
        if said.node == self._node or self._member is None:
            return
        news = aged(said.news, max(0.0, self._wall() - said.at)) if later else said.news
        if not later or news != CLEAN:
            self._member.tell(said.mark, news)
