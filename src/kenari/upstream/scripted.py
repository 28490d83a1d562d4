"""The scripted provider's outbound end: addresses that begin with `scripted:` are answered from a script.

It stands where a connection would stand, so the whole way of a request, its timing, cancelling and back-pressure
included, is the same as with a real provider.
"""

import asyncio
import time
from collections.abc import Callable

from kenari.core.errors import interrupted
from kenari.core.outbound import Call, Outgoing, Receiver
from kenari.upstream.script import Script, perform, refusal


class ScriptedUpstream:
    """An Upstream (core.outbound) that opens no socket. `clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def way(self, request: Outgoing) -> None:
        """Nothing is gained by one."""

    def start(self, request: Outgoing, receiver: Receiver) -> Call:
        """Begin to play. Must be called in a running event loop."""
        if request.url.endswith("/chat/completions"):
            script = perform(request.body, int(self._clock()))
        else:
            script = refusal(404, "the scripted provider speaks chat completions only")
        return _ScriptedCall(script, receiver, asyncio.get_running_loop())


class _ScriptedCall:
    """Plays a script: the head at once, then each step after its delay. A pause stops the clock of the next step."""

    sent = True

    def __init__(self, script: Script, receiver: Receiver, loop: asyncio.AbstractEventLoop) -> None:
        self._script = script
        self._receiver = receiver
        self._loop = loop
        self._next = 0
        self._over = False
        self._paused = False
        self._headed = False
        self._due = loop.time()
        self._left = 0.0  # seconds to wait after a pause
        self._timer: asyncio.Handle | None = loop.call_soon(self._play)

    def hear(self, receiver: Receiver) -> None:
        """From now on this one hears of it."""
        self._receiver = receiver

    def abort(self) -> None:
        """Nothing more is heard."""
        self._over = True
        self._cancel()

    def hasten(self, quick: Callable[[bytes], bool] | None) -> None:
        """There are no bytes of a connection."""

    def pause(self) -> None:
        """Hold the next step back."""
        if not self._paused and not self._over:
            self._paused = True
            self._left = max(0.0, self._due - self._loop.time())
            self._cancel()

    def resume(self) -> None:
        """Go on where it stopped."""
        if self._paused and not self._over:
            self._paused = False
            self._wait(self._left)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, delay: float) -> None:
        self._cancel()
        self._due = self._loop.time() + delay
        self._timer = self._loop.call_later(delay, self._play)

    def _play(self) -> None:
        """Everything that is due now; the receiver may abort, pause or resume at each word of it."""
        self._cancel()
        if not self._headed:
            self._headed = True
            self._receiver.on_head(self._script.status, self._script.headers)
            if self._over:
                return
            if self._script.steps and self._script.steps[0].delay:
                self._hold(self._script.steps[0].delay)
                return
        steps = self._script.steps
        while self._next < len(steps):
            if self._over or self._paused:
                return
            step = steps[self._next]
            self._next += 1
            self._receiver.on_body(step.data)
            self._cancel()  # it may have paused and resumed: the loop itself goes on
            if self._next < len(steps) and steps[self._next].delay:
                self._hold(steps[self._next].delay)
                return
        self._end()

    def _hold(self, delay: float) -> None:
        """Wait for the next step; if the receiver paused meanwhile, the wait begins when it resumes."""
        if self._paused:
            self._left = delay
        elif not self._over:
            self._wait(delay)

    def _end(self) -> None:
        if self._over or self._paused:
            return
        self._over = True
        if self._script.broken:
            error = interrupted()
            error.elsewhere = True  # until content another target may serve
            self._receiver.on_lost(error)
        else:
            self._receiver.on_end()
