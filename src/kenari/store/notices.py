"""Hearing what other nodes say through their common PostgreSQL server (LISTEN). Nothing of it is kept there."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

import psycopg

from kenari.store.postgres import CONNECT_SECONDS

_log = logging.getLogger("kenari.store")
POLL_SECONDS = 1.0
RETRY_SECONDS = 2.0


class Notices:
    """A thread with a connection of its own that listens on one channel. `hear` is called in the loop with each text;
    with None when some may have been lost, because the connection was."""

    def __init__(self, url: str, channel: str, hear: Callable[[str | None], None]) -> None:
        self._url, self._channel, self._hear = url, channel, hear
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kenari-notices", daemon=True)

    def start(self) -> None:
        """Begin to listen; a server that is not there is waited for."""
        self._thread.start()

    async def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen()
            except psycopg.Error as error:
                _log.info("nodes cannot be heard at the moment: %s", type(error).__name__)
                self._tell(None)
                self._ended.wait(RETRY_SECONDS)

    def _listen(self) -> None:
        with psycopg.connect(self._url, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
            connection.execute(f'LISTEN "{self._channel}"'.encode())
            while not self._ended.is_set():
                for notice in connection.notifies(timeout=POLL_SECONDS):
                    self._tell(notice.payload)
                    if self._ended.is_set():
                        break

    def _tell(self, text: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._hear, text)
