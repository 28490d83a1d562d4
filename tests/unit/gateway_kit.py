"""The gateway without sockets: an exchange that records, a provider that plays steps, and a way to run both."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import virtual_time

from kenari.catalog.health import Health
from kenari.catalog.models import Catalog, Model, TargetRef
from kenari.core.errors import KenariError, interrupted
from kenari.core.ids import Envelopes
from kenari.core.outbound import Call, Hearer, Outgoing, Receiver, Stream
from kenari.core.ports import Hold, Incoming, Line, Reservation, Take, Watcher
from kenari.core.profile import Profile
from kenari.dialects.registry import DIALECTS
from kenari.doors.public import PublicDoor
from kenari.gateway.routing import Routing
from kenari.gateway.serve import Gateway
from kenari.gateway.services import Own, Services
from kenari.gateway.ticker import Ticker
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.providers.base import Provider

KEY = "kn-test"
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
Step: TypeAlias = "tuple[float, bytes | KenariError | None]"
"""(seconds before it, bytes of the body, the loss of the connection, or None for its end)."""


class Script(msgspec.Struct):
    """What a provider does: a status, headers, then steps."""

    steps: Sequence[Any] = ()
    status: int = 200
    headers: dict[bytes, bytes] = msgspec.field(default_factory=lambda: {b"content-type": b"text/event-stream"})
    head_after: float = 0.0

    @property
    def whole(self) -> bytes | None:
        """The body of an answer that comes at once."""
        if len(self.steps) == 2 and not self.steps[0][0] and self.steps[1] == (0, None):
            return self.steps[0][1] if isinstance(self.steps[0][1], bytes) else None
        return None


class Exchange:
    """An exchange that records what is sent."""

    def __init__(self, path: str, body: bytes, headers: dict[bytes, bytes] | None = None, method: str = "POST") -> None:
        self.id = "0123456789abcdef"
        self.method, self.path, self.query = method, path, ""
        self.headers = {b"authorization": b"Bearer " + KEY.encode()} if headers is None else headers
        self.body = body
        self.incoming: Incoming | None = None
        self.peer = "127.0.0.1"
        self.gone = False
        self.extra_headers = b""
        self.watcher: Watcher | None = None
        self.status = 0
        self.head = b""
        self.out = b""
        self.ended = self.aborted = False
        self.leader: Take | None = None
        self.writes: list[bytes] = []

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """Record the whole answer."""
        if self.gone or self.status:
            return
        self.status, self.head, self.out, self.ended = status, headers, body, True

    def begin(self, status: int, headers: bytes, data: bytes = b"") -> None:
        """Record the head, and what comes with it as one write."""
        self.status, self.head = status, headers
        if data:
            self.write(data)

    def write(self, data: bytes) -> None:
        """Record one write."""
        if not self.gone:
            self.out += data
            self.writes.append(data)

    def cork(self) -> None:
        """Each write is recorded."""

    def uncork(self) -> None:
        """Nothing was kept."""

    def drop_body(self) -> None:
        self.body = b""

    def lead(self, take: Take) -> None:
        """Record who would like to be asked first."""
        self.leader = take

    def raw(self) -> Callable[[bytes], None] | None:
        """There are no chunks."""
        return None

    def end(self, data: bytes = b"") -> None:
        """Record the end, and what comes with it as one write."""
        if data:
            self.write(data)
        self.ended = True

    def abort(self) -> None:
        """Record the break."""
        self.aborted = True

    def leave(self) -> None:
        """The client goes away."""
        self.gone = True
        if self.watcher is not None:
            self.watcher.on_gone()

    @property
    def json(self) -> Any:
        """The body of a JSON answer."""
        return json.loads(self.out)

    @property
    def header(self) -> dict[str, str]:
        """The answer's headers."""
        return dict(line.split(": ", 1) for line in (self.head + self.extra_headers).decode().split("\r\n") if line)

    @property
    def header_lines(self) -> dict[str, str]:
        """The answer's headers with those that go out with whatever head is sent."""
        more = dict(line.split(": ", 1) for line in self.extra_headers.decode().split("\r\n") if line)
        return self.header | more

    @property
    def data(self) -> list[Any]:
        """The data of each frame of a stream, `[DONE]` as text."""
        lines = [line[6:] for line in self.out.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


class FakeCall:
    """A provider call that plays its script."""

    sent = True
    """Whether there is a connection that has it."""

    def __init__(
        self, script: Script, receiver: Receiver, stream: Stream | None = None, hearer: Hearer | None = None
    ) -> None:
        self.aborted = False
        self.pauses: list[bool] = []
        self.streamed = b""
        self._receiver, self._hearer = receiver, hearer
        self._stream = stream
        self._task = asyncio.get_running_loop().create_task(self._play(script))

    async def _play(self, script: Script) -> None:
        try:
            while self._stream is not None and len(self.streamed) < self._stream.size:
                self.streamed += await self._stream.read(len(self.streamed))
        except KenariError as lost:
            self._receiver.on_lost(lost)
            return
        await asyncio.sleep(script.head_after)
        if self._hearer is not None and script.status == 200 and script.whole is not None:
            self._hearer.on_whole(script.headers, script.whole)
            return
        self._receiver.on_head(script.status, script.headers)
        for delay, what in script.steps:
            if delay:
                await asyncio.sleep(delay)
            if isinstance(what, KenariError):
                self._receiver.on_lost(what)
                return
            if what is None:
                self._receiver.on_end()
                return
            self._receiver.on_body(what)

    async def _lose(self, error: KenariError) -> None:
        self._receiver.on_lost(error)

    def hear(self, receiver: Receiver) -> None:
        """Somebody else hears of it from now on."""
        self._receiver, self._hearer = receiver, None

    def abort(self) -> None:
        """Broken off by the gateway."""
        self.aborted = True
        self._task.cancel()

    def hasten(self, quick: Callable[[bytes], bool] | None) -> None:
        """There are no bytes of a connection."""

    def pause(self) -> None:
        """Told to stop reading."""
        self.pauses.append(True)

    def resume(self) -> None:
        """Told to read on."""
        self.pauses.append(False)


class FakeUpstream:
    """Plays one script for each provider address; a KenariError refuses the connection."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[Script | KenariError]] = {}
        self.requests: list[Outgoing] = []
        self.calls: list[FakeCall] = []

    def way(self, request: Outgoing) -> "FakeWay":
        """Calls like this one."""
        return FakeWay(self, request)

    def start(self, request: Outgoing, receiver: Receiver, hearer: Hearer | None = None) -> Call:
        """Begin to play."""
        self.requests.append(request)
        name = request.url.split("/")[2]
        script = self.scripts[name].pop(0)
        if isinstance(script, KenariError):
            script = Script(status=0, steps=())
            call = FakeCall.__new__(FakeCall)
            call.aborted, call.pauses, call.streamed = False, [], b""
            call.hear(receiver)
            error = KenariError("upstream_unavailable", "cannot be reached", retry_after=1, elsewhere=True)
            loop = asyncio.get_running_loop()
            call._task = loop.create_task(call._lose(error))  # pyright: ignore[reportPrivateUsage]
        else:
            call = FakeCall(script, receiver, request.stream, hearer)
        self.calls.append(call)
        return call

    @property
    def sent(self) -> list[Any]:
        """The JSON of each request."""
        return [json.loads(request.body) for request in self.requests]


class FakeWay:
    """Calls that differ in their bodies only."""

    def __init__(self, upstream: FakeUpstream, request: Outgoing) -> None:
        self._upstream, self._request = upstream, request
        self.sent = 0

    def send(self, body: bytes, receiver: Receiver, hearer: Hearer | None = None) -> Call:
        """Begin one."""
        self.sent += 1
        return self._upstream.start(msgspec.structs.replace(self._request, body=body), receiver, hearer)


class FakeBooks:
    """Books that keep their lines."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.open = 0
        self.at_once = True
        """Whether a hold takes no wait."""
        self.grants_least = False
        """Whether no more is set aside than has to be."""
        self.notes: list[int] = []
        self.takes = 0.0
        """Seconds that `reserve` takes."""
        self.refuses: Exception | None = None

    async def reserve(self, reservation: Reservation) -> Hold:
        """Count a hold."""
        if self.takes:
            await asyncio.sleep(self.takes)
        if self.refuses is not None and self.lines:
            raise self.refuses
        return self._hold(reservation)

    def admit(self, reservation: Reservation) -> Hold | None:
        """The same at once."""
        return self._hold(reservation) if self.at_once else None

    def _hold(self, reservation: Reservation) -> Hold:
        self.open += 1
        granted = reservation.least if self.grants_least else reservation.amount
        return Hold(reservation.id, reservation.caller, granted)

    async def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        """As much as is wanted."""
        return Hold(hold.id, hold.caller, hold.amount + amount)

    def note(self, hold: Hold, charge: int) -> None:
        """Keep it."""
        self.notes.append(charge)

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Keep the line."""
        self.open -= hold is not None
        self.lines.append(line)

    def settle_later(self, hold: Hold, finish: Callable[[], Line]) -> None:
        """At once."""
        self.settle(hold, finish())


class Rig:
    """A gateway in front of fake providers `p1`, `p2` ... that serve the model `m` in this order."""

    def __init__(
        self,
        *scripts: Script | KenariError | Sequence[Script | KenariError],
        dialect: str = "chat",
        profile: Profile | None = None,
        **model: Any,
    ) -> None:
        self.upstream, self.books = FakeUpstream(), FakeBooks()
        self.timing: dict[str, Any] = {"header_timeout": 5, "first_event_timeout": 5, "idle_timeout": 5}
        self.silence = (15.0, 120.0)
        self.provider_keys: tuple[str, ...] = ()
        self.own: Own | None = None
        self.services: dict[str, Any] = {}
        self.dialect, self.profile, self.model = dialect, profile or Profile(), model
        self.cors: tuple[str, ...] = ()
        self.keys: Any = BootstrapKeys({KEY: OPERATOR})
        self.more: dict[str, Any] = {}
        for number, script in enumerate(scripts, 1):
            self.upstream.scripts[f"p{number}"] = (
                [script] if isinstance(script, (Script, KenariError)) else list(script)
            )

    def build(self) -> PublicDoor:
        """The door, in a running loop."""
        names = list(self.upstream.scripts)
        providers = {
            name: Provider(
                name=name,
                dialect=self.dialect,
                base_url=f"http://{name}/v1",
                keys=self.provider_keys or (f"sk-{name}",),
                profile=self.profile,
                **self.timing,
            )
            for name in names
        }
        model = Model(id="m", targets=tuple(TargetRef(name, "vendor-model") for name in names), **self.model)
        keys = self.keys
        catalog = Catalog({"m": model, "pic": Model(id="pic", targets=model.targets, kind="image")}, {})
        services = Services(
            catalog=catalog,
            providers=providers,
            keys=keys,
            books=self.books,
            upstreams={"http": self.upstream},
            ticker=Ticker(asyncio.get_running_loop(), 0.01),
            envelopes=Envelopes(b"k" * 32),
            cache_key=b"c" * 32,
            keepalive=self.silence[0],
            noop_after=self.silence[1],
            **self.more,
            own=self.own,
            **self.services,
        )
        gateway = Gateway(services)
        return PublicDoor(gateway, keys, catalog, self.cors, lambda: True)

    def ask(
        self, client: str, stream: bool = True, act: Callable[[Exchange], None] | None = None, **more: Any
    ) -> Exchange:
        """Send a small request of a client format; `act` is called shortly after it has begun."""
        body: dict[str, Any] = {"model": "m", "stream": stream, **more}
        if client == "responses":
            body.setdefault("input", "hi")
        else:
            body.setdefault("messages", [{"role": "user", "content": "hi"}])
        return self.post(PATHS[client], json.dumps(body).encode(), act=act)

    def post(
        self,
        path: str,
        body: bytes,
        headers: dict[bytes, bytes] | None = None,
        method: str = "POST",
        act: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        """Send anything."""

        async def run() -> Exchange:
            door = self.build()
            exchange = Exchange(path, body, headers, method)
            task = asyncio.get_running_loop().create_task(serve(door, exchange))
            if act is not None:
                await asyncio.sleep(0.05)
                act(exchange)
            await asyncio.wait_for(task, 10)
            await asyncio.sleep(0)
            return exchange

        return virtual_time.run(run())


async def serve(door: PublicDoor, exchange: Exchange) -> None:
    """As the inbound end does it, to the end."""
    answer = door.begin(exchange)
    if answer is not None:
        await answer
    while not (exchange.ended or exchange.aborted or exchange.gone):  # noqa: ASYNC110 - step by step
        await asyncio.sleep(0.001)


def read_late(exchange: Exchange) -> None:
    """A client that stops to read, and reads again after 0.6 seconds."""
    watcher = exchange.watcher
    assert watcher is not None
    watcher.on_pause()
    asyncio.get_running_loop().call_later(0.6, watcher.on_resume)


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """A chat chunk as a provider sends it."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {
        "id": "cc-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "vendor-model",
        "choices": [choice],
        **more,
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk({}, "stop", usage={"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12})
DONE = b"data: [DONE]\n\n"
GOOD = Script([(0, ROLE), (0, chunk({"content": "Hello"})), (0, STOP + DONE), (0, None)])
LOST = interrupted()


def error(status: int, message: str = "boom", **headers: str) -> Script:
    """An HTTP error of a provider."""
    body = json.dumps({"error": {"message": message, "type": "x", "code": status}}).encode()
    lines = {b"content-type": b"application/json"} | {
        k.replace("_", "-").encode(): v.encode() for k, v in headers.items()
    }
    return Script([(0, body), (0, None)], status, lines)


def plain(body: Any) -> Script:
    """A JSON answer."""
    return Script([(0, json.dumps(body).encode()), (0, None)], 200, {b"content-type": b"application/json"})


COMPLETION = {
    "id": "cc-1",
    "object": "chat.completion",
    "created": 1,
    "model": "vendor-model",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}
FORMATS = tuple(DIALECTS)


def remembered(routing: Routing) -> dict[str, Health]:
    """What a process remembers of the candidates it has called, by their names."""
    marks = routing._health | routing._answers  # pyright: ignore[reportPrivateUsage]
    return {mark.rpartition("@")[0]: routing._known(mark) for mark in marks}  # pyright: ignore[reportPrivateUsage]
