"""The management token: who gets in, and how guesses are slowed (A3, F11)."""

import asyncio
from collections.abc import Callable

import pytest
from admin_kit import TOKEN, admin_port
from edge_kit import run
from hypothesis import given
from hypothesis import strategies as st

from kenari.core.errors import KenariError
from kenari.core.ports import Incoming, Take, Watcher
from kenari.doors.admin import guard as rules
from kenari.doors.admin.guard import Guard, source_of
from kenari.wire.address import is_loopback


class Knock:
    """An exchange with nothing but a peer and a header."""

    id, method, path, query, body, gone, extra_headers = "0" * 16, "GET", "/", "", b"", False, b""
    watcher: Watcher | None = None
    incoming: Incoming | None = None

    def __init__(self, authorization: bytes | None, peer: str = "192.0.2.1") -> None:
        self.headers = {} if authorization is None else {b"authorization": authorization}
        self.peer = peer

    def answer(self, status: int, headers: bytes, body: bytes) -> None: ...
    def begin(self, status: int, headers: bytes, data: bytes = b"") -> None: ...
    def write(self, data: bytes) -> None: ...
    def cork(self) -> None: ...
    def uncork(self) -> None: ...
    def raw(self) -> None: ...
    def lead(self, take: Take) -> None: ...

    def drop_body(self) -> None: ...
    def end(self, data: bytes = b"") -> None: ...
    def abort(self) -> None: ...


class Post:
    """A guard with a clock that is set, sleeps that are written down, and reports."""

    def __init__(self, sleep: Callable[[float], asyncio.Future[None]] | None = None) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.reports: list[tuple[str, int]] = []
        self.gate: asyncio.Event | None = None
        self.guard = Guard(TOKEN, lambda: self.now, self._sleep, self._report)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.gate is not None:
            await self.gate.wait()

    async def _report(self, peer: str, count: int) -> None:
        self.reports.append((peer, count))

    async def knock(self, authorization: bytes | None, peer: str = "192.0.2.1") -> str:
        """The actor, or the error's code."""
        try:
            return await self.guard.admit(Knock(authorization, peer))
        except KenariError as error:
            return error.code if TOKEN not in error.message else "the token was told"


RIGHT = b"Bearer " + TOKEN.encode()


def test_f11_the_token_opens_and_its_id_is_no_part_of_it() -> None:
    async def main() -> None:
        post = Post()
        for header in (RIGHT, b"bearer  " + TOKEN.encode() + b" "):
            assert await post.knock(header) == post.guard.actor
        assert post.guard.actor.startswith("token:")
        assert TOKEN[:6] not in post.guard.actor
        assert post.slept == []

    run(main())


@pytest.mark.parametrize("header", [None, b"", b"Bearer", b"Bearer ", b"Basic " + TOKEN.encode(), TOKEN.encode()])
def test_no_token_is_no_guess(header: bytes | None) -> None:
    async def main() -> None:
        post = Post()
        assert await post.knock(header) == "invalid_api_key"
        assert post.slept == []
        assert post.reports == []

    run(main())


@given(st.binary(min_size=1, max_size=60))
def test_a3_nothing_but_the_token_opens(guess: bytes) -> None:
    async def main() -> None:
        post = Post()
        if guess.strip() not in (TOKEN.encode(), b""):
            assert await post.knock(b"Bearer " + guess) == "invalid_api_key"

    asyncio.run(main())


@pytest.mark.parametrize("guess", [TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "kn-bootstrap"])
def test_a3_near_misses_do_not_open(guess: str) -> None:
    async def main() -> None:
        assert await Post().knock(b"Bearer " + guess.encode()) == "invalid_api_key"

    run(main())


def test_wrong_tokens_wait_longer_each_time_up_to_a_bound() -> None:
    async def main() -> None:
        post = Post()
        for _ in range(12):
            await post.knock(b"Bearer wrong")
        assert post.slept[:4] == [0.1, 0.2, 0.4, 0.8]
        assert post.slept[-1] == rules.LONGEST_DELAY
        assert await post.knock(RIGHT) == post.guard.actor  # who has the token does not wait
        await post.knock(b"Bearer wrong", "192.0.2.2")
        assert post.slept[-1] == rules.FIRST_DELAY  # another peer begins anew
        post.now += rules.FORGET_SECONDS
        await post.knock(b"Bearer wrong")
        assert post.slept[-1] == rules.FIRST_DELAY

    run(main())


def test_wrong_tokens_are_reported_at_once_and_then_once_a_minute_with_their_number() -> None:
    async def main() -> None:
        post = Post()
        for _ in range(5):
            await post.knock(b"Bearer wrong")
        assert post.reports == [("192.0.2.1", 1)]
        post.now += rules.AUDIT_SECONDS
        await post.knock(b"Bearer wrong")
        assert post.reports == [("192.0.2.1", 1), ("192.0.2.1", 5)]

    run(main())


def test_a_crowd_of_guesses_is_refused_unread() -> None:
    async def main() -> None:
        post = Post()
        post.gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            guesses = [group.create_task(post.knock(b"Bearer wrong")) for _ in range(rules.MAX_WAITING_OF_PEER)]
            await asyncio.sleep(0)
            assert await post.knock(RIGHT) == "rate_limited"  # even the right one: else a crowd could try them all
            assert await post.knock(RIGHT, "192.0.2.2") == post.guard.actor
            for number in range(rules.MAX_WAITING - rules.MAX_WAITING_OF_PEER):
                guesses.append(group.create_task(post.knock(b"Bearer wrong", f"10.0.{number // 256}.{number % 256}")))
            await asyncio.sleep(0)
            assert await post.knock(b"Bearer wrong", "192.0.2.3") == "rate_limited"
            post.gate.set()
        assert {task.result() for task in guesses} == {"invalid_api_key"}
        assert await post.knock(RIGHT) == post.guard.actor

    run(main())


def test_peers_are_forgotten_rather_than_kept_without_bound() -> None:
    async def main() -> None:
        post = Post()
        for number in range(rules.MAX_PEERS + 50):
            await post.knock(b"Bearer wrong", f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
        assert len(vars(post.guard)["_peers"]) == rules.MAX_PEERS

    run(main())


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "local"),
    ],
)
def test_whom_guesses_are_counted_for(peer: str, source: str) -> None:
    assert source_of(peer) == source


@pytest.mark.parametrize(
    ("listen", "local"),
    [
        ("127.0.0.1:8081", True),
        ("127.8.0.1:8081", True),
        ("[::1]:8081", True),
        ("localhost:1", True),
        ("unix:/run/x", True),
        ("0.0.0.0:8081", False),
        ("[::]:8081", False),
        (":8081", False),
        ("10.0.0.1:8081", False),
        ("kenari.example:8081", False),
    ],
)
def test_f11_what_counts_as_loopback(listen: str, local: bool) -> None:
    assert is_loopback(listen) is local


def test_f11_metrics_need_the_token_unless_the_port_is_loopback() -> None:
    async def main() -> None:
        async with admin_port(None, open_metrics=True) as admin:
            assert (await admin.call("GET", "/metrics", token=None))[0] == 200
            assert (await admin.call("GET", "/admin/v1/status", token=None))[0] == 401
        async with admin_port(None, open_metrics=False) as admin:
            assert (await admin.call("GET", "/metrics", token=None))[0] == 401
            assert (await admin.call("GET", "/metrics", token="wrong"))[0] == 401
            assert (await admin.call("GET", "/metrics"))[0] == 200

    run(main())


def test_a_wrong_token_is_told_late_and_reported_over_the_wire() -> None:
    async def main() -> None:
        async with admin_port(None, pace=1.0) as admin:
            began = asyncio.get_running_loop().time()
            status, headers, body = await admin.call("GET", "/admin/v1/status", token="wrong")
            assert asyncio.get_running_loop().time() - began >= rules.FIRST_DELAY * 0.9
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
            assert headers["www-authenticate"] == "Bearer"
            assert headers["x-should-retry"] == "false"
            assert admin.reports == [("127.0.0.1", 1)]

    run(main())
