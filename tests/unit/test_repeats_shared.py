"""Idempotency-Key over the workers of a node, over nodes, and with answers that are kept: real processes."""

import http.client
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from workers_kit import CHAT, PLAYS, WORDS, configuration, until, workers_of

from tests.gateway import KEY, Answer, Gateway, running_gateway
from tests.upstream import ScriptedProvider, scripted_provider

SHARED = {"KENARI_SECRET": "one secret of all nodes of the test"}
STREAMS = [True, False]


class House(NamedTuple):
    """Nodes before one provider."""

    nodes: list[Gateway]
    provider: ScriptedProvider

    def made(self, before: int = 0) -> int:
        """How many calls reached the provider."""
        return len(self.provider.seen) - before


@contextmanager
def house(urls: Sequence[str], workers: int = 1, more: str = "") -> Generator[House]:
    """One node for each store address."""
    with ExitStack() as stack:
        provider = stack.enter_context(scripted_provider(PLAYS))
        nodes: list[Gateway] = []
        for number, url in enumerate(urls):
            text = configuration(provider.base_url("chat"), workers)
            text += f'[store]\nurl = "{url}"\nnode = "node{number}"\n' + more
            nodes.append(stack.enter_context(running_gateway(text, env=SHARED)))
        yield House(nodes, provider)


def ask(node: Gateway, key: str, stream: bool, model: str = "held", text: str = "x") -> Answer:
    body = {"model": model, "stream": stream, "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    return node.call(CHAT, body, headers={"idempotency-key": key})


def together(asks: Sequence[Callable[[], Answer]], pause: float = 0.3) -> list[Answer]:
    """The first one, and after a pause all others at once."""
    with ThreadPoolExecutor(len(asks)) as pool:
        first = pool.submit(asks[0])
        time.sleep(pause)
        rest = [pool.submit(one) for one in asks[1:]]
        return [first.result(), *(one.result() for one in rest)]


def left(node: Gateway) -> list[dict[str, Any]]:
    """The lines of requests whose clients have gone."""
    return [line for line in list(node.lines) if line["reason"] == "client_closed"]


def same(answers: Sequence[Answer]) -> None:
    """All of them are one answer."""
    assert [one.status for one in answers] == [200] * len(answers), [one.body[:200] for one in answers]
    assert len({one.body for one in answers}) == 1
    assert len({one.headers["x-request-id"] for one in answers}) == 1
    assert all(word.strip() in answers[0].body.decode() for word in WORDS)


@pytest.mark.parametrize("store", ["sqlite", "none"])
def test_over_workers_a_repeat_gets_the_same_answer_while_in_flight(store: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db" if store == "sqlite" else "none:"
    with house([url], workers=4) as here:
        node = here.nodes[0]
        for stream in STREAMS:
            before = len(here.provider.seen)
            key = f"key {stream}"
            answers = together([lambda key=key, stream=stream: ask(node, key, stream)] * 9)
            same(answers)
            assert here.made(before) == 1
            again = [ask(node, key, stream) for _ in range(6)]
            assert {one.status for one in again} == {409}
            assert all(answers[0].headers["x-request-id"] in one.body.decode() for one in again)
            other = ask(node, key, stream, text="another body")
            assert (other.status, here.made(before)) == (409, 1)


def test_the_first_client_may_go_while_one_of_another_worker_is_there(tmp_path: Path) -> None:
    """And with the last one the provider is broken off."""
    with house([f"sqlite:///{tmp_path}/kenari.db"], workers=2) as here:
        node = here.nodes[0]
        first = [Reader(node, "key 1", "held") for _ in range(1)]
        first[0].begin()
        others = [Reader(node, "key 1", "held").begin() for _ in range(6)]
        first[0].close()
        assert all(one.rest().endswith(b"data: [DONE]\n\n") for one in others)
        assert here.made() == 1
        assert not left(node)
        readers = [Reader(node, "key 2", "hangs").begin() for _ in range(7)]
        for reader in readers:
            reader.close()
        until(lambda: len(left(node)) == 7, 5.0)
        assert sum(line["tokens"]["output"] > 0 for line in left(node)) == 1  # one of them was made, and is billed
        assert here.made() == 2


def test_the_death_of_the_worker_that_answers_breaks_the_answer_for_all(tmp_path: Path) -> None:
    """Never a clean end; nobody waits for ever."""
    with house([f"sqlite:///{tmp_path}/kenari.db"], workers=2) as here:
        node = here.nodes[0]
        readers = [Reader(node, "key 1", "hangs").begin() for _ in range(6)]
        for worker in workers_of(node):
            worker.kill()
        assert all(reader.broken() for reader in readers)


def test_over_nodes_a_repeat_gets_the_same_answer_while_in_flight(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()
    with house([url, url]) as here:
        one, two = here.nodes
        for stream in STREAMS:
            before = len(here.provider.seen)
            key = f"key {stream}"
            asks = [lambda node=node, key=key, stream=stream: ask(node, key, stream) for node in (one, two) * 3]
            answers = together(asks)
            same(answers)
            assert here.made(before) == 1
            again = [ask(node, key, stream) for node in (one, two)]
            assert [answer.status for answer in again] == [409, 409]
            assert all(answers[0].headers["x-request-id"] in answer.body.decode() for answer in again)
        assert ask(two, "key True", True, text="another body").status == 409
        # at one moment at both nodes, without a pause: still made once
        before = len(here.provider.seen)
        same(together([lambda node=node: ask(node, "key 3", True) for node in (one, two) * 4], pause=0.0))
        assert here.made(before) == 1


def test_over_nodes_a_client_that_goes_or_a_node_that_dies_is_noticed(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()
    with house([url, url]) as here:
        one, two = here.nodes
        first, far = Reader(one, "key 1", "hangs").begin(), Reader(two, "key 1", "hangs").begin()
        first.close()
        time.sleep(0.5)
        assert not left(one)
        far.close()
        until(lambda: len(left(one)) == 1, 8.0)
        first, far = Reader(one, "key 2", "hangs").begin(), Reader(two, "key 2", "hangs").begin()
        one.process.kill()
        assert first.broken()
        began = time.monotonic()
        assert far.broken(25)
        assert time.monotonic() - began < 20  # 9 s of silence, seen every 2 s


def test_answers_that_are_kept_are_sent_again_and_charged_once(store_url: str) -> None:
    with house([store_url], workers=2, more='[idempotency]\nkeep = "3s"\n') as here:
        node = here.nodes[0]
        for stream in STREAMS:
            before = len(here.provider.seen)
            key = f"key {stream}"
            first = ask(node, key, stream, "plain")
            same([first, *(ask(node, key, stream, "plain") for _ in range(5))])
            assert here.made(before) == 1
            assert ask(node, key, stream, "plain", text="another body").status == 409
        time.sleep(3.2)
        late = ask(node, "key True", True, "plain")
        assert (late.status, late.json()["error"]["code"]) == (409, "idempotency_conflict")
        failed = [ask(node, "key 3", True, "nothing").status for _ in range(2)]
        assert failed == [404, 404]


def test_what_is_kept_cannot_be_read_in_the_store_and_goes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"
    with house([url], more='[idempotency]\nkeep = "2s"\n') as here:
        same([ask(here.nodes[0], "key", stream=True, model="plain") for _ in range(2)])
        kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.name.startswith("kenari.db"))
        assert WORDS[3].encode() not in kept
        assert count(tmp_path) == 1
        until(lambda: count(tmp_path) == 0, 20.0)


def count(folder: Path) -> int:
    with closing(sqlite3.connect(f"file:{folder}/kenari.db?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT COUNT(*) FROM answers").fetchone()[0]


class Reader:
    """A client that reads a stream piece by piece."""

    def __init__(self, node: Gateway, key: str, model: str) -> None:
        self.connection = http.client.HTTPConnection(*node.address, timeout=45)
        body = {"model": model, "stream": True, "max_tokens": 100, "messages": [{"role": "user", "content": "x"}]}
        headers = {"authorization": f"Bearer {KEY}", "idempotency-key": key, "content-type": "application/json"}
        self.connection.request("POST", CHAT, json.dumps(body), headers)
        self.answer: Any = None
        self.text = b""

    def begin(self) -> "Reader":
        """Read the first content."""
        self.answer = self.connection.getresponse()
        while b"word" not in self.text:
            line = self.answer.readline()
            assert line, (self.answer.status, self.text)
            self.text += line
        return self

    def rest(self) -> bytes:
        """All of it."""
        try:
            self.text += self.answer.read()
        finally:
            self.close()
        return self.text

    def close(self) -> None:
        """Go."""
        self.answer.close()
        self.connection.close()

    def broken(self, patience: float = 10.0) -> bool:
        """Whether the connection breaks before the end."""
        found: list[bool] = []

        def read() -> None:
            try:
                self.rest()
                found.append(False)
            except (http.client.HTTPException, ConnectionError):
                found.append(True)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        reading.join(patience)
        return found == [True]
