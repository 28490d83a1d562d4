"""The keeper's books and limits as a worker reaches them: both ends in one loop, over a real socket pair."""

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import msgspec
import pytest
import uvloop

from kenari.config.table import Secret as SecretText
from kenari.core.caller import Budget, Caller, Rates, Scope
from kenari.core.errors import KenariError
from kenari.core.own_keys import OwnKeyShown
from kenari.core.ports import Admission, Hold, Leg, LimitReached, Line, Rate, Repeat, Reservation
from kenari.core.price import Price
from kenari.core.request import Notice
from kenari.core.usage import Usage
from kenari.keeper import remote
from kenari.keeper.answers import NodeAnswers
from kenari.keeper.callers import (
    PackedCallers,
    UnpackedCallers,
    key_set,
    own_key_set,
    pack,
    sealed_of,
    secrets_of,
    unpack,
)
from kenari.keeper.channel import Channel
from kenari.keeper.own_keys import SealedOwnKeys, StoredOwnKeys
from kenari.keeper.remote import Link, RemoteBooks, RemoteLimits, RemoteOwnKeys, RemoteRecords
from kenari.keeper.session import Report, Session, Shared
from kenari.keeper.words import (
    Configure,
    Drain,
    FromWorker,
    KeySet,
    Note,
    OwnKeySet,
    Push,
    PutOwnKey,
    Ready,
    Reserve,
    Settle,
    Setup,
    Word,
)
from kenari.keys.stored import Secret
from kenari.keys.vault import Vault
from kenari.store.records import ProviderKeyRow, StoreDown

CALLER = Caller(
    account="acc_1",
    key="key_1",
    plan="pro",
    scope=Scope(
        models=("a", "b*"),
        endpoints=("messages",),
        networks=(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")),
    ),
    rates=Rates(rpm=5, concurrent=2),
    budget=Budget(7, "day"),
    account_rates=Rates(tpm=9),
    account_budget=Budget(11),
    expires_at=1.5,
)
PRICE = Price(version="v1", input=1, output=2, cache_read=3, cache_write=4, cache_write_1h=5)
OWN = "sk-proj-my-own-secret-key-1234"
MASTERS = (b"m" * 32, b"o" * 32)
RESERVATION = Reservation(
    id="r1", caller=CALLER, model="m", amount=100, least=10, price=PRICE, repeat=Repeat(b"k", b"b")
)


class FakeBooks:
    """Books that do as they are told. `gate` holds reservations up, `error` refuses them."""

    def __init__(self) -> None:
        self.reserved: list[Reservation] = []
        self.notes: list[tuple[str, int]] = []
        self.extended: list[tuple[Hold, int, int]] = []
        self.settled: list[tuple[Hold | None, Line]] = []
        self.open: dict[str, str] = {}
        self.abandoned: list[str] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def reserve(self, reservation: Reservation, owner: str = "") -> Hold:
        self.reserved.append(reservation)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.open[reservation.id] = owner
        return Hold(reservation.id, reservation.caller, reservation.amount - 1)

    async def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        self.extended.append((hold, amount, least))
        if self.error is not None:
            raise self.error
        return Hold(hold.id, hold.caller, hold.amount + amount)

    def admit(self, reservation: Reservation) -> Hold | None:
        return None

    def note(self, hold: Hold, charge: int) -> None:
        self.notes.append((hold.id, charge))

    def settle(self, hold: Hold | None, line: Line) -> None:
        if line.id == "poison":
            raise RuntimeError("a fault of the books")
        if hold is not None:
            self.open.pop(hold.id, None)
        self.settled.append((hold, line))

    def settle_later(self, hold: Hold, finish: Callable[[], Line]) -> None:
        self.settle(hold, finish())

    def abandon(self, owner: str) -> None:
        left = [name for name, one in self.open.items() if one == owner]
        self.abandoned += left
        for name in left:
            del self.open[name]


class FakeLimits:
    """Limits that let `left` requests in."""

    local = True

    def __init__(self) -> None:
        self.left = 10
        self.released: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Admission:
        await self.gate.wait()
        if not self.left:
            error = KenariError("rate_limited", "wait", "tokens", retry_after=1.5, should_retry=False)
            raise LimitReached(error, Rate(1, 0, 2.5), Rate(3, 0, 4.5))
        self.left -= 1
        return Admission(request_id, caller, Rate(tokens, len(body), 0.5))

    def release(self, admission: Admission, tokens: int) -> None:
        self.left += 1
        self.released.append((admission.id, tokens))


class FakeRecords:
    """Records of one request."""

    async def key(self, caller: Caller) -> bytes:
        return f"key {caller.key}".encode()

    async def credits(self, caller: Caller) -> bytes:
        raise KenariError("upstream_unavailable", "the store does not answer", retry_after=2)

    async def generation(self, caller: Caller, request_id: str) -> bytes | None:
        return f"{caller.account} {request_id}".encode() if request_id == "r1" else None


class FakeKeyStore:
    """Provider keys in memory. `error` is what it answers with."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], ProviderKeyRow] = {}
        self.changes = 0
        self.actors: list[str] = []
        self.error: Exception | None = None

    async def put_provider_key(self, row: ProviderKeyRow, *, actor: str) -> None:
        self._ask(actor)
        self.rows[row.account, row.provider] = row
        self.changes += 1

    async def drop_provider_key(self, account: str, provider: str, *, actor: str) -> bool:
        self._ask(actor)
        self.changes += 1
        return self.rows.pop((account, provider), None) is not None

    async def provider_keys(self, account: str = "") -> list[ProviderKeyRow]:
        self._ask()
        return [row for row in self.rows.values() if account in ("", row.account)]

    async def sequence(self) -> int:
        return self.changes

    async def rewrap_provider_keys(self, rewrap: Callable[[ProviderKeyRow], ProviderKeyRow], *, actor: str) -> int:
        self._ask(actor)
        self.rows = {name: rewrap(row) for name, row in self.rows.items()}
        return len(self.rows)

    def _ask(self, actor: str = "") -> None:
        if self.error is not None:
            raise self.error
        if actor:
            self.actors.append(actor)


class Pair:
    """A worker's end and its session in the keeper."""

    def __init__(self) -> None:
        self.books, self.limits, self.orphaned = FakeBooks(), FakeLimits(), FakeBooks()
        self.pushed: list[Push] = []
        self.reports: list[Report] = []
        self.link = Link(self._pushed)
        self.keeper: Channel[FromWorker] = Channel(FromWorker, self._hear)
        self.key_store = FakeKeyStore()
        nonces = (number.to_bytes(12) for number in itertools.count())
        self.stored = StoredOwnKeys(
            self.key_store, Vault(MASTERS), frozenset(("p1", "p2")), lambda: 5.0, lambda size: next(nonces)
        )
        shared = Shared(
            books=self.books,
            limits=self.limits,
            records=FakeRecords(),
            callers=UnpackedCallers(),
            own_book=self.stored,
            answers=NodeAnswers("node", None),
        )
        self.session = Session("worker-1", shared, self.keeper.say, self.reports.append)
        callers = PackedCallers()
        self.remote = RemoteBooks(self.link, callers, self.orphaned)
        self.remote_limits = RemoteLimits(self.link, callers)
        self.records = RemoteRecords(self.link, callers)
        self.book = RemoteOwnKeys(self.link)
        self.own = SealedOwnKeys(Vault(MASTERS))

    async def follow_own_keys(self) -> None:
        """From now on the keeper tells the worker what callers have brought, as a node does."""
        await self.stored.start(lambda: self.keeper.say(own_key_set(self.stored.sealed)))

    def _pushed(self, word: Push) -> None:
        self.pushed.append(word)
        if isinstance(word, OwnKeySet):
            self.own.sealed = sealed_of(word)

    def _hear(self, word: FromWorker) -> None:
        self.session.hear(word)

    async def leave(self) -> None:
        """The worker dies."""
        self.link.channel.close()
        await self.keeper.closed
        await self.session.ended()


def run(main: Callable[[Pair], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20), connected() as pair:
            await main(pair)

    uvloop.run(bounded())


@contextlib.asynccontextmanager
async def connected() -> AsyncGenerator[Pair]:
    pair = Pair()
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    await loop.create_unix_connection(lambda: pair.link.channel, sock=ours)
    await loop.create_unix_connection(lambda: pair.keeper, sock=theirs)
    try:
        yield pair
    finally:
        pair.stored.close()
        pair.link.channel.close()
        pair.keeper.close()
        await asyncio.gather(pair.link.channel.closed, pair.keeper.closed)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - what tests wait for has no event
            await asyncio.sleep(0.002)


def test_a_caller_arrives_as_it_was() -> None:
    assert unpack(pack(CALLER)) == CALLER
    for name in Caller.__struct_fields__:  # so that the comparison speaks of every field
        assert name == "unlimited" or getattr(CALLER, name) != getattr(Caller(account="", key=""), name), name


def test_a_caller_is_packed_once_until_it_changes() -> None:
    packed, unpacked = PackedCallers(), UnpackedCallers()
    assert packed.pack(CALLER) is packed.pack(CALLER)
    assert unpacked.unpack(packed.pack(CALLER)) is unpacked.unpack(pack(CALLER))
    changed = msgspec.structs.replace(CALLER, plan="other")
    assert unpack(packed.pack(changed)).plan == "other"


def test_the_keys_arrive_as_they_were() -> None:
    secrets = [Secret(b"d1", CALLER, None), Secret(b"d2", CALLER, 9.5)]
    word = msgspec.msgpack.decode(msgspec.msgpack.encode(key_set(4, secrets)), type=type(key_set(0, [])))
    assert (word.sequence, secrets_of(word)) == (4, secrets)


def test_a_reservation_and_a_line_arrive_whole() -> None:
    async def main(pair: Pair) -> None:
        hold = await pair.remote.reserve(RESERVATION)
        assert pair.books.reserved == [RESERVATION]
        assert hold == Hold("r1", CALLER, 99)
        assert hold.caller is CALLER
        pair.remote.note(hold, 42)
        line = Line(
            id="r1",
            account="acc_1",
            usage=Usage(fresh=1, output=2, estimated=True),
            legs=[Leg("p/m", Usage(fresh=1), "ok", 3.5, False, 6)],
            notices=[Notice("dropped", "why")],
            price=PRICE,
            charge=7,
            ending="done",
        )
        pair.remote.settle(hold, line)
        await until(lambda: bool(pair.books.settled))
        assert pair.books.notes == [("r1", 42)]
        assert pair.books.settled == [(hold, line)]
        assert pair.session.in_flight == 0

    run(main)


def test_more_is_set_aside_for_a_hold_in_the_keeper() -> None:
    """F8: and what the keeper knows of it is the larger hold."""

    async def main(pair: Pair) -> None:
        hold = await pair.remote.reserve(RESERVATION)
        larger = await pair.remote.extend(hold, 50, 5)
        assert larger == Hold("r1", CALLER, 149)
        assert pair.books.extended == [(hold, 50, 5)]
        assert (await pair.remote.extend(larger, 1, 1)).amount == 150
        pair.books.error = KenariError("insufficient_balance", "top up")
        with pytest.raises(KenariError, match="top up"):
            await pair.remote.extend(larger, 1, 1)
        pair.remote.settle(larger, Line(id="r1", ending="done"))
        await until(lambda: bool(pair.books.settled))
        assert pair.books.settled[0][0] == Hold("r1", CALLER, 150)
        with pytest.raises(KenariError, match="not open any more"):
            await pair.remote.extend(larger, 1, 1)

    run(main)


def test_every_field_of_a_reservation_crosses() -> None:
    """Who adds a field to the port adds it to the word."""
    assert set(Reservation.__struct_fields__) == set(Reserve.__struct_fields__) - {"number"}


def test_an_error_of_the_books_is_the_same_error_in_the_worker() -> None:
    async def main(pair: Pair) -> None:
        pair.books.error = KenariError("insufficient_balance", "top up", "model", retry_after=2.5, elsewhere=True)
        with pytest.raises(KenariError) as told:
            await pair.remote.reserve(RESERVATION)
        for name in ("code", "message", "param", "retry_after", "should_retry", "elsewhere", "status"):
            assert getattr(told.value, name) == getattr(pair.books.error, name), name
        pair.books.error = RuntimeError("secret words")
        with pytest.raises(KenariError, match="something went wrong") as told:
            await pair.remote.reserve(RESERVATION)
        assert told.value.code == "internal_error"
        refused = Line(id="r1", ending="refused")
        pair.remote.settle(None, refused)
        await until(lambda: pair.books.settled == [(None, refused)])

    run(main)


def test_the_limits_are_counted_in_one_place() -> None:
    async def main(pair: Pair) -> None:
        admission = await pair.remote_limits.admit(CALLER, "r1", 12, b"four")
        assert admission == Admission("r1", CALLER, Rate(12, 4, 0.5))
        pair.remote_limits.release(admission, 34)
        await until(lambda: pair.limits.released == [("r1", 34)])
        pair.limits.left = 0
        with pytest.raises(LimitReached, match="wait") as told:
            await pair.remote_limits.admit(CALLER, "r2", 1, b"")
        assert (told.value.requests, told.value.tokens) == (Rate(1, 0, 2.5), Rate(3, 0, 4.5))
        assert (told.value.code, told.value.retry_after, told.value.should_retry) == ("rate_limited", 1.5, False)

    run(main)


def test_what_callers_read_of_themselves_comes_from_the_keeper() -> None:
    async def main(pair: Pair) -> None:
        assert await pair.records.key(CALLER) == b"key key_1"
        assert await pair.records.generation(CALLER, "r1") == b"acc_1 r1"
        assert await pair.records.generation(CALLER, "r2") is None
        with pytest.raises(KenariError, match="does not answer") as told:
            await pair.records.credits(CALLER)
        assert (told.value.status, told.value.retry_after) == (503, 2)

    run(main)


def test_own_keys_are_kept_by_the_keeper_and_found_in_the_worker() -> None:
    """A change is there before its answer, so that who has stored a key can use it."""

    async def main(pair: Pair) -> None:
        await pair.follow_own_keys()
        shown = await pair.book.put("acc_1", "p1", OWN, actor="key:k1")
        assert shown == OwnKeyShown("p1", "1234", 5.0)
        assert pair.own.find("acc_1", "p1") == OWN
        assert (pair.own.find("acc_2", "p1"), pair.own.find("acc_1", "p2")) == (None, None)
        await pair.book.put("acc_2", "p2", OWN + "5", actor="key:k2")
        assert await pair.book.shown("acc_1") == [shown]
        assert await pair.book.shown("acc_3") == []
        await pair.book.put("acc_1", "p1", "another-key-of-mine", actor="key:k1")
        assert pair.own.find("acc_1", "p1") == "another-key-of-mine"
        assert await pair.book.drop("acc_1", "p1", actor="key:k3") is True
        assert (pair.own.find("acc_1", "p1"), pair.own.find("acc_2", "p2")) == (None, OWN + "5")
        assert await pair.book.drop("acc_1", "p1", actor="key:k3") is False
        assert pair.key_store.actors == ["key:k1", "key:k2", "key:k1", "key:k3", "key:k3"]
        assert len(pair.pushed) == 4  # what changes nothing is not told

    run(main)


def test_own_keys_that_change_elsewhere_are_told_within_two_seconds() -> None:
    async def main(pair: Pair) -> None:
        elsewhere = StoredOwnKeys(pair.key_store, Vault(MASTERS), frozenset(("p1",)), lambda: 6.0, bytes)
        await elsewhere.put("acc_1", "p1", OWN, actor="other node")
        await pair.follow_own_keys()
        await until(lambda: pair.own.find("acc_1", "p1") == OWN)
        await elsewhere.drop("acc_1", "p1", actor="other node")
        async with asyncio.timeout(2):
            await until(lambda: pair.own.find("acc_1", "p1") is None)
        pair.key_store.changes += 1  # of an account or of a `kn-` key
        told = len(pair.pushed)
        await asyncio.sleep(1.2)
        assert len(pair.pushed) == told

    run(main)


def test_an_error_of_the_own_keys_is_the_same_error_in_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: Pair) -> None:
        with pytest.raises(KenariError) as told:
            await pair.book.put("acc_1", "p1", f"{OWN} x", actor="a")
        assert (told.value.code, told.value.param) == ("bad_request", "key")
        with pytest.raises(KenariError, match="possible are: p1, p2") as told:
            await pair.book.put("acc_1", "p9", OWN, actor="a")
        assert told.value.code == "not_found"
        pair.key_store.error = StoreDown("connection lost to db.example")
        for asked in (
            pair.book.shown("acc_1"),
            pair.book.put("acc_1", "p1", OWN, actor="a"),
            pair.book.drop("acc_1", "p1", actor="a"),
        ):
            with pytest.raises(KenariError, match="the store cannot be reached now") as told:
                await asked
            assert (told.value.code, told.value.status, told.value.retry_after) == ("upstream_unavailable", 503, 2.0)
        pair.key_store.error = RuntimeError(OWN)
        with pytest.raises(KenariError, match="something went wrong") as told:
            await pair.book.put("acc_1", "p1", OWN, actor="a")
        assert told.value.code == "internal_error"
        assert pair.own.find("acc_1", "p1") is None

    with caplog.at_level(logging.DEBUG):
        run(main)
    assert "PutOwnKey failed with RuntimeError" in caplog.text
    assert OWN not in caplog.text


def test_what_is_secret_is_in_no_repr_of_a_word() -> None:
    sealed = Vault(MASTERS).seal("acc_1", "p1", OWN, bytes(12))
    own = own_key_set({("acc_1", "p1"): sealed})
    secrets = envelopes, cache, hmac = b"envelopes-key", b"cache-key", b"hmac-key"
    setup = Setup(1, b"pickled-config", envelopes, cache, hmac, "kn-bootstrap", KeySet(1, []), True, MASTERS, own)
    shown = repr([setup, own, PutOwnKey(1, "acc_1", "p1", OWN, "key:k"), Configure(2, b"pickled-config")])
    for secret in (
        OWN,
        "kn-bootstrap",
        "pickled-config",
        repr(sealed)[2:-1],
        *(one.decode() for one in (*secrets, *MASTERS)),
    ):
        assert secret not in shown, secret


def test_a_worker_that_dies_leaves_nothing_open() -> None:
    async def main(pair: Pair) -> None:
        for number in (1, 2):
            await pair.remote.reserve(msgspec.structs.replace(RESERVATION, id=f"r{number}", repeat=None))
        await pair.remote_limits.admit(CALLER, "r1", 12, b"")
        pair.remote.note(Hold("r1", CALLER), 5)
        pair.remote.note(Hold("r2", CALLER), 5000)
        pair.books.gate.clear()
        pair.limits.gate.clear()
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(pair.remote.reserve(msgspec.structs.replace(RESERVATION, id="r3"))),
            asyncio.ensure_future(pair.remote_limits.admit(CALLER, "r3", 8, b"")),
        ]
        await until(lambda: len(pair.books.reserved) == 3)
        leaving = asyncio.ensure_future(pair.leave())
        await asyncio.sleep(0.01)
        pair.books.gate.set()
        pair.limits.gate.set()
        await leaving
        for one in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(one, KenariError)
            assert (one.status, one.retry_after) == (503, 1.0)
        assert pair.books.settled == []
        assert pair.books.notes == [("r1", 5), ("r2", 5000)]
        assert sorted(pair.books.abandoned) == ["r1", "r2", "r3"]
        assert pair.books.open == {}
        assert sorted(pair.limits.released) == [("r1", 12), ("r3", 8)]

    run(main)


def test_no_request_waits_forever_and_a_late_hold_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.05)
    monkeypatch.setattr(remote, "SWEEP_SECONDS", 0.02)

    async def main(pair: Pair) -> None:
        pair.books.gate.clear()
        pair.limits.gate.clear()
        with pytest.raises(KenariError) as told:
            await pair.remote.reserve(RESERVATION)
        assert (told.value.status, told.value.retry_after) == (503, 1.0)
        with pytest.raises(KenariError):
            await pair.remote_limits.admit(CALLER, "r1", 3, b"")
        refused = Line(id="r1", ending="refused")
        pair.remote.settle(None, refused)
        await asyncio.sleep(0.05)
        assert pair.books.settled == []
        pair.books.gate.set()
        pair.limits.gate.set()
        await until(lambda: bool(pair.books.settled and pair.limits.released))
        assert pair.books.settled == [(Hold("r1", CALLER, 99), refused)]
        assert pair.limits.released == [("r1", 0)]
        assert pair.session.in_flight == 0

    run(main)


def test_without_a_keeper_nothing_is_admitted_and_lines_reach_the_log() -> None:
    async def main(pair: Pair) -> None:
        hold = await pair.remote.reserve(RESERVATION)
        pair.keeper.close()
        await pair.link.channel.closed
        for _ in range(2):
            with pytest.raises(KenariError) as told:
                await pair.remote.reserve(RESERVATION)
            assert (told.value.status, told.value.retry_after) == (503, 1.0)
        line = Line(id="r1", ending="done")
        pair.remote.settle(hold, line)
        assert pair.orphaned.settled == [(None, line)]

    run(main)


def test_a_fault_in_one_word_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: Pair) -> None:
        pair.remote.settle(None, Line(id="poison"))
        pair.remote.settle(None, Line(id="after"))
        await until(lambda: [line.id for _, line in pair.books.settled] == ["after"])

    run(main)
    assert "Settle failed with RuntimeError" in caplog.text
    assert "fault of the books" not in caplog.text


def test_the_words_of_one_turn_travel_in_one_write() -> None:
    async def main(pair: Pair) -> None:
        writes: list[int] = []
        transport = pair.link.channel._transport  # pyright: ignore[reportPrivateUsage]
        assert transport is not None

        class Counting:
            def write(self, data: bytes) -> None:
                writes.append(len(data))
                transport.write(data)

            def close(self) -> None:
                transport.close()

        pair.link.channel._transport = Counting()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        for number in range(100):
            pair.link.say(Settle(Line(id=str(number))))
        await until(lambda: len(pair.books.settled) == 100)
        assert len(writes) == 1

    run(main)


def test_a_word_that_cannot_be_said_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: Pair) -> None:
        odd: Any = object()
        for line in (Line(id=SecretText("one")), Line(id=odd), Line(id="two")):
            pair.link.say(Settle(line))
        await until(lambda: [line.id for _, line in pair.books.settled] == ["one", "two"])

    run(main)
    assert "a Settle cannot be said: TypeError" in caplog.text


def test_frames_may_come_in_any_pieces() -> None:
    async def main(pair: Pair) -> None:
        words: list[Word] = [Ready(3), Note("x", 1), Settle(Line(id="y" * 300))]
        frame = msgspec.msgpack.encode(words)
        data = (len(frame).to_bytes(4) + frame) * 3
        for size in (1, 2, 3, 7, len(data)):
            pair.books.settled.clear()
            for at in range(0, len(data), size):
                pair.keeper.data_received(data[at : at + size])
            assert [line.id for _, line in pair.books.settled] == ["y" * 300] * 3
        assert pair.reports == [Ready(3)] * 15

    run(main)


@pytest.mark.parametrize("data", [b"\0\0\0\1\xc1", b"\0\0\0\4\x91\x91\x01\x01", b"\xff\xff\xff\xff"])
def test_what_is_no_frame_cuts_the_other_end_off(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: Pair) -> None:
        pair.keeper.data_received(data)
        await pair.keeper.closed
        await pair.link.channel.closed

    run(main)
    assert "it is cut off" in caplog.text


def test_what_is_said_before_the_connection_stands_is_heard_first() -> None:
    async def main() -> None:
        heard: list[Any] = []
        link = Link(heard.append)
        keeper: Channel[FromWorker] = Channel(FromWorker, lambda word: None)
        keeper.say(Drain())
        await asyncio.sleep(0)
        keeper.say(Drain())
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: link.channel, sock=ours)
        await loop.create_unix_connection(lambda: keeper, sock=theirs)
        await until(lambda: heard == [Drain(), Drain()])
        keeper.close()
        await link.channel.closed
        await keeper.closed

    uvloop.run(main())
