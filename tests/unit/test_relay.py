"""Answers of repeated requests on their way between processes (F14): relays, mail of nodes, what is kept. In one loop."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import virtual_time
from edge_kit import until
from gateway_kit import COMPLETION, DONE, GOOD, Rig, error, plain
from money_kit import PaidBooks, paid
from test_repeats import HEADERS, SLOW, ask

from kenari.core.errors import KenariError, key_was_used
from kenari.core.ports import Hold, Outlet, Repeat, Reservation, Whole
from kenari.gateway.repeats import Repeats
from kenari.keeper import mail as mail_module
from kenari.keeper import relay as relay_module
from kenari.keeper.answers import Keeping, NodeAnswers
from kenari.keeper.mail import Mail, channel_of
from kenari.keeper.relay import Relay
from kenari.keeper.words import Attach, Piece, Sign, Word
from kenari.keys.box import Box
from kenari.store.records import Repeated, StoreDown

REPEAT = Repeat(b"key", b"body")


async def settled() -> None:
    """Until what was said has come: a few turns of the loop, however long they take."""
    for _ in range(50):
        await asyncio.sleep(0)


class Client:
    """An outlet that records."""

    def __init__(self) -> None:
        self.gone = False
        self.watcher: Any = None
        self.got: list[Any] = []

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        self.got.append(("answer", status, headers, body))

    def begin(self, status: int, headers: bytes) -> None:
        self.got.append(("begin", status, headers))

    def write(self, data: bytes) -> None:
        self.got.append(data)

    def end(self) -> None:
        self.got.append("end")

    def abort(self) -> None:
        self.got.append("abort")


class Watch:
    """Hears of a client."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_gone(self) -> None:
        self.heard.append("gone")

    def on_pause(self) -> None:
        self.heard.append("pause")

    def on_resume(self) -> None:
        self.heard.append("resume")


class Ends:
    """Two relays; the second one has what `outlets` take."""

    def __init__(self, there: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self.outlets: list[Outlet] = []
        self.there = there
        self.one: Relay = Relay(lambda word: loop.call_soon(self.two.hear, word) and None, self._nothing)  # type: ignore[arg-type]
        self.two: Relay = Relay(lambda word: loop.call_soon(self.one.hear, word) and None, self._share)  # type: ignore[arg-type]

    async def _nothing(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        return False

    async def _share(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        self.outlets.append(outlet)
        if self.there:
            outlet.watcher = Watch()
        return self.there


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main()

    virtual_time.run(bounded())


def test_f14_an_answer_crosses_as_it_comes() -> None:
    async def main() -> None:
        ends, client = Ends(), Client()
        assert await ends.one.ask("acc", REPEAT, client)
        out = ends.outlets[0]
        assert (ends.one.busy, ends.two.busy) == (True, True)
        out.begin(200, b"h: 1\r\n")
        out.write(b"a")
        client.watcher.on_pause()
        client.watcher.on_resume()
        await settled()
        assert client.got == [("begin", 200, b"h: 1\r\n"), b"a"]
        assert out.watcher.heard == ["pause", "resume"]  # type: ignore[union-attr]
        out.end()
        out.write(b"never")
        await settled()
        assert client.got[2:] == ["end"]
        assert (ends.one.busy, ends.two.busy) == (False, False)

    run(main)


def test_f14_a_plain_answer_that_is_there_at_once_comes_after_the_word_that_it_is() -> None:
    async def main() -> None:
        ends, client = Ends(), Client()
        share = ends._share  # pyright: ignore[reportPrivateUsage]

        async def at_once(account: str, repeat: Repeat, outlet: Outlet) -> bool:
            outlet.answer(200, b"", b"{}")
            return await share(account, repeat, outlet)

        ends.two._share = at_once  # pyright: ignore[reportPrivateUsage]
        assert await ends.one.ask("acc", REPEAT, client)
        await settled()
        assert client.got == [("answer", 200, b"", b"{}")]
        ends.there = False
        ends.two._share = ends._share  # pyright: ignore[reportPrivateUsage]
        assert not await ends.one.ask("acc", REPEAT, client)
        assert not await ends.two.ask("acc", REPEAT, client)
        assert (ends.one.busy, ends.two.busy) == (False, False)

    run(main)


def test_f14_a_client_that_goes_is_told_and_gets_nothing_more() -> None:
    async def main() -> None:
        ends, client = Ends(), Client()
        await ends.one.ask("acc", REPEAT, client)
        out = ends.outlets[0]
        client.gone = True
        client.watcher.on_gone()
        await settled()
        assert (out.gone, out.watcher.heard) == (True, ["gone"])  # type: ignore[union-attr]
        out.write(b"late")
        out.end()
        await settled()
        assert client.got == ["abort"]
        assert (ends.one.busy, ends.two.busy) == (False, False)

    run(main)


def test_d16_when_an_end_is_gone_its_answers_break_off_and_its_clients_have_gone() -> None:
    async def main() -> None:
        ends, client = Ends(), Client()
        await ends.one.ask("acc", REPEAT, client)
        ends.one.close()
        ends.two.close()
        assert client.got == ["abort"]
        assert (ends.outlets[0].gone, ends.outlets[0].watcher.heard) == (True, ["gone"])  # type: ignore[union-attr]

    run(main)


def test_nobody_waits_for_ever_for_the_word_that_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "PATIENCE", 0.05)

    async def main() -> None:
        said: list[Word] = []
        relay = Relay(said.append, Ends()._share)  # pyright: ignore[reportPrivateUsage]
        assert not await relay.ask("acc", REPEAT, Client())
        assert said == [Attach(1, "acc", REPEAT), Sign(1, "gone")]
        relay.hear(Piece(1, "here"))  # too late
        relay.hear(Sign(7, "gone"))  # nobody's
        asking = asyncio.ensure_future(relay.ask("acc", REPEAT, Client()))
        await settled()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert said[-1] == Sign(2, "gone")
        assert not relay.busy
        assert "body" not in repr(Piece(1, "write", data=b"body"))  # no log shows what was said

    run(main)


# -- between nodes


class Wires:
    """Nodes whose mail goes through one list; `lose` drops the next notice."""

    def __init__(self, *names: str) -> None:
        self.lose = False
        self.sent = 0
        self.shares = {name: Ends() for name in names}
        self.mails = {name: self.mail(name) for name in names}

    def mail(self, name: str, life: bytes = b"one") -> Mail:
        ends = self.shares[name]
        return Mail(name, life, self._send, ends._share)  # pyright: ignore[reportPrivateUsage]

    async def _send(self, channel: str, text: str) -> None:
        assert len(text) < 8000
        self.sent += 1
        if self.lose:
            self.lose = False
            return
        for name, mail in self.mails.items():
            if channel_of(name) == channel:
                asyncio.get_running_loop().call_soon(mail.hear, text)


def test_f14_mail_cuts_what_is_long_and_joins_it_again() -> None:
    async def main() -> None:
        wires, client = Wires("a", "b"), Client()
        assert await wires.mails["a"].ask("b", "acc", REPEAT, client)
        out = wires.shares["b"].outlets[0]
        long = bytes(range(256)) * 200
        out.begin(200, b"")
        for at in range(3):
            out.write(long + bytes([at]))
        out.end()
        await until(lambda: "end" in client.got)
        assert client.got == [("begin", 200, b""), *(long + bytes([at]) for at in range(3)), "end"]
        assert wires.sent > 20
        for mail in wires.mails.values():
            await mail.close()

    run(main)


def test_d16_a_notice_that_is_lost_breaks_off_what_was_under_way() -> None:
    async def main() -> None:
        wires, client = Wires("a", "b"), Client()
        await wires.mails["a"].ask("b", "acc", REPEAT, client)
        out = wires.shares["b"].outlets[0]
        wires.lose = True
        out.write(b"lost")
        await settled()
        out.write(b"more")
        await settled()
        assert client.got == ["abort"]
        again = Client()  # and afterwards all is well
        assert await wires.mails["a"].ask("b", "acc", REPEAT, again)
        wires.shares["b"].outlets[1].answer(200, b"", b"x")
        await settled()
        assert again.got == [("answer", 200, b"", b"x")]
        wires.mails["a"].hear("no base64 at all!")
        wires.mails["a"].hear(None)
        for mail in wires.mails.values():
            await mail.close()

    run(main)


def test_d16_a_node_that_was_started_anew_or_falls_silent_breaks_off_what_was_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mail_module, "ALIVE_SECONDS", 0.005)
    now = 0.0

    async def main() -> None:
        nonlocal now
        wires, first, second = Wires("a", "b"), Client(), Client()
        for mail in wires.mails.values():
            vars(mail)["_loop"] = SimpleNamespace(time=lambda: now)
            mail.start()
        await wires.mails["a"].ask("b", "acc", REPEAT, first)
        for _ in range(5):
            now += 0.6 * mail_module.SILENT_SECONDS
            heard = wires.sent + 6
            await until(lambda heard=heard: wires.sent >= heard)  # each has said since then that it is alive
        assert first.got == []  # a silent answer of a living node
        old = wires.mails["b"]
        wires.mails["b"] = wires.mail("b", b"another life")
        assert await wires.mails["a"].ask("b", "acc", REPEAT, second) in (True, False)
        assert first.got == ["abort"]
        await old.close()
        third = Client()
        assert await wires.mails["a"].ask("b", "acc", REPEAT, third)
        del wires.mails["b"]
        now += 1.1 * mail_module.SILENT_SECONDS
        await until(lambda: bool(third.got))
        assert third.got == ["abort"]
        await wires.mails["a"].close()

    run(main)


def test_a_store_that_cannot_carry_mail_breaks_off_what_was_under_way() -> None:
    async def main() -> None:
        async def send(channel: str, text: str) -> None:
            raise StoreDown("no")

        mail = Mail("a", b"one", send, Ends()._share)  # pyright: ignore[reportPrivateUsage]
        assert not await mail.ask("b", "acc", REPEAT, Client())
        await mail.close()

    run(main)


# -- a gateway that finds the answer elsewhere


class KnownStore:
    """A store that knows one request."""

    def __init__(self) -> None:
        self.found: Repeated | None = None
        self.kept: list[tuple[str, bytes, float]] = []
        self.down = False

    def keep_answer(self, request: str, sealed: bytes, seconds: float) -> "asyncio.Future[None]":
        self.kept.append((request, sealed, seconds))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    async def repeated(self, account: str, digest: bytes) -> Repeated | None:
        if self.down:
            raise StoreDown("no")
        return self.found


class OnceBooks(PaidBooks):
    """Books that know of an earlier request with each key."""

    def __init__(self) -> None:
        super().__init__(10**9)
        self.used: set[bytes] = set()

    async def reserve(self, reservation: Reservation) -> Hold:
        """Refuse a repeat."""
        if reservation.repeat is not None and reservation.repeat.key in self.used:
            raise key_was_used("abc")
        if reservation.repeat is not None:
            self.used.add(reservation.repeat.key)
        return await super().reserve(reservation)


def gateways(*scripts: Any, keep: bool = False) -> tuple[list[Rig], OnceBooks, list[NodeAnswers], KnownStore]:
    """Two processes with the same books: the second asks the first for answers, as a worker does through its keeper."""
    books, store = OnceBooks(), KnownStore()
    keeping = Keeping(60.0, Box(b"k" * 32, "a test keeps answers"), lambda count: b"n" * count) if keep else None
    answers = [NodeAnswers("a", store, keeping), NodeAnswers("b", store, keeping)]
    rigs: list[Rig] = []
    for _ in range(2):
        rig, _ = paid(list(scripts))
        rig.books = books
        rigs.append(rig)
    return rigs, books, answers, store


def played(
    rigs: list[Rig], answers: list[NodeAnswers], steps: Callable[[Any], Coroutine[Any, Any, None]], far: bool = True
) -> None:
    async def main() -> None:
        doors: list[Any] = []
        for rig, one in zip(rigs, answers, strict=True):
            rig.services["repeats"] = Repeats(asyncio.get_running_loop().time, one)
            doors.append(rig.build())
        if far:

            async def attach(account: str, repeat: Repeat, outlet: Outlet, asker: Any = None) -> bool:
                return await answers[0].lend(account, repeat, outlet)

            answers[1].attach = attach  # type: ignore[method-assign]

        def send(at: int, exchange: Any) -> "asyncio.Future[None]":
            return asyncio.ensure_future(doors[at].serve(exchange))

        await steps(send)

    run(main)


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
def test_f14_a_repeat_at_another_process_gets_the_same_answer(client: str) -> None:
    rigs, books, answers, _ = gateways(SLOW)
    first, second, third = ask(client, 1), ask(client, 2), ask(client, 3)

    async def steps(send: Any) -> None:
        one = send(0, first)
        await asyncio.sleep(0.1)
        two, three = send(1, second), send(1, third)  # the third attaches to the second, in its own process
        await asyncio.gather(one, two, three)

    played(rigs, answers, steps)
    assert first.out == second.out == third.out
    assert second.ended
    assert second.header["x-request-id"] == first.id
    assert (len(rigs[0].upstream.requests), len(rigs[1].upstream.requests)) == (1, 0)
    lines = {line.id: line for line in books.lines}
    assert [lines[one.id].charge for one in (first, second, third)] == [15, 0, 0]
    assert (lines[second.id].ending, lines[second.id].status) == ("done", 200)
    assert books.reserved == 0


def test_f14_where_no_process_has_the_answer_it_is_409() -> None:
    rigs, books, answers, store = gateways(GOOD)
    first, second, third = ask(number=1), ask(number=2), ask(number=3)

    async def steps(send: Any) -> None:
        await send(0, first)
        await send(1, second)
        store.down = True
        await send(1, third)

    played(rigs, answers, steps, far=False)
    assert (first.status, second.status, third.status) == (200, 409, 409)
    assert second.json["error"]["message"] == key_was_used("abc").message
    assert [line.ending for line in books.lines] == ["done", "refused", "refused"]


@pytest.mark.parametrize("stream", [True, False])
def test_f14_an_answer_that_was_kept_is_sent_again(stream: bool) -> None:
    script = GOOD if stream else plain(COMPLETION)
    rigs, books, answers, store = gateways(script, error(500), keep=True)
    first, second, other = (ask(number=number, stream=stream) for number in (1, 2, 3))
    other.headers = HEADERS | {b"idempotency-key": b"another"}

    async def steps(send: Any) -> None:
        await send(0, first)
        request, sealed, seconds = store.kept[0]
        assert (request, seconds) == (first.id, 60.0)
        assert b"Hello" not in sealed
        digest = next(iter(books.reservations)).repeat
        assert digest is not None
        store.found = Repeated(first.id, digest.body, "", sealed)
        await send(0, second)  # in the same process, and in another one
        await send(1, third)
        await send(0, other)  # a failure that cost nothing is not kept

    third = ask(number=4, stream=stream)
    played(rigs, answers, steps, far=False)
    assert (first.status, first.out, first.head) == (second.status, second.out, second.head)
    assert (third.out, third.status) == (first.out, 200)
    assert other.status == 502
    assert len(store.kept) == 1
    assert sum(line.charge for line in books.lines) == 15
    assert stream == second.out.endswith(DONE)


def test_s104_what_was_kept_opens_for_its_own_account_and_request_only() -> None:
    box = Box(b"k" * 32, "a test keeps answers")
    sealed = box.seal("acc\0r1", b"what was said", b"n" * 12)
    assert b"said" not in sealed
    assert box.open("acc\0r1", sealed) == b"what was said"
    assert box.open("acc\0r2", sealed) is None
    assert box.open("acc\0r1", sealed[:-1] + b"x") is None
    assert Box(b"o" * 32, "a test keeps answers").open("acc\0r1", sealed) is None
    assert "k" * 8 not in repr(box)


def test_f14_one_that_was_kept_is_sent_to_the_same_body_only() -> None:
    async def main() -> None:
        store, client = KnownStore(), Client()
        node = NodeAnswers(
            "a", store, Keeping(60.0, Box(b"k" * 32, "a test keeps answers"), lambda count: b"n" * count)
        )
        node.keep("acc", "r1", Whole(200, b"h: 1\r\n", b"{}", stream=False))
        store.found = Repeated("r1", REPEAT.body, "", store.kept[0][1])
        assert not await node.attach("acc", Repeat(b"key", b"other"), client)
        assert not await node.attach("other", REPEAT, client)
        assert await node.attach("acc", REPEAT, client)
        await asyncio.sleep(0)
        assert client.got == [("answer", 200, b"h: 1\r\n", b"{}")]
        plain = NodeAnswers("a", store)
        plain.keep("acc", "r2", Whole(200, b"", b"{}", stream=False))
        assert len(store.kept) == 1
        assert not await plain.attach("acc", REPEAT, client)

    run(main)


def test_f14_without_a_store_the_workers_of_a_node_still_agree() -> None:
    async def main() -> None:
        node, ends = NodeAnswers("a", None), Ends()
        node.claim(REPEAT, "r1", ends.one)
        for body in (b"body", b"other"):
            with pytest.raises(KenariError, match="r1"):
                node.claim(Repeat(b"key", body), "r2", ends.two)
        node.over("r2", again=True)  # it was never made
        client = Client()
        assert not await node.attach("acc", REPEAT, client, ends.one)  # who asks is who makes it
        assert await node.attach("acc", REPEAT, client, ends.two)  # another worker asks, and gets it
        node.over("r1", again=True)
        node.claim(REPEAT, "r3", ends.one)
        node.over("r3", again=False)
        with pytest.raises(KenariError, match="r3"):
            node.claim(REPEAT, "r4", ends.one)

    run(main)
