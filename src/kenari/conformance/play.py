"""Plays scenarios against a gateway: one connection for each request, and the moment of each byte. The only sockets here."""

import http.client
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from kenari.conformance.checks import CHECKS
from kenari.conformance.observe import Answer, said
from kenari.conformance.scenario import FORMATS, PATHS, Format, Scenario, body_of, headers_of

PATIENCE = 120.0
"""Seconds without a byte after which a request has failed."""
AT_ONCE = 6


class Gateway(NamedTuple):
    """What is judged: its address without /v1, a key, a model; `scripted` when that is kenari's scripted model."""

    url: str
    key: str
    model: str
    scripted: bool


class Result(NamedTuple):
    """One scenario in one format: what was found wrong, by check; `skipped` says why it was not played."""

    scenario: Scenario
    form: Format
    faults: tuple[str, ...] = ()
    skipped: str = ""


MAX_REST = 10
"""Seconds; no gateway is waited for longer between two requests."""


def play_all(gateway: Gateway, scenarios: Sequence[Scenario], slow: bool) -> list[Result]:
    """All scenarios in all formats, several at once; after them, each alone, those with clients that leave and those for
    which a gateway may set its provider aside."""
    pairs: list[tuple[Scenario, Format]] = [(scenario, form) for scenario in scenarios for form in FORMATS]

    def one(pair: tuple[Scenario, Format]) -> Result:
        return play(gateway, pair[0], pair[1], slow)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(one, [pair for pair in pairs if not pair[0].alone]))
    return results + [one(pair) for pair in pairs if pair[0].alone]


def play(gateway: Gateway, scenario: Scenario, form: Format, slow: bool = True) -> Result:
    """One scenario in one format."""
    if form not in scenario.formats:
        return Result(scenario, form, skipped="not in this format")
    if scenario.only_scripted and not gateway.scripted:
        return Result(scenario, form, skipped="needs the scripted model")
    if scenario.slow and not slow:
        return Result(scenario, form, skipped="takes long")
    checks = scenario.checks + (scenario.scripted if gateway.scripted else ())
    faults: list[str] = []
    for stream in scenario.streams:
        for _ in range(scenario.leavers):
            _leave(gateway, scenario, form)
        try:
            answer = _exchange(gateway, scenario, form, stream)
        except OSError as error:
            faults.append(f"{_how(stream)}: no answer: {error}")
            continue
        if scenario.rests:
            _rest(answer)
        words = said(answer)
        for name in checks:
            fault = CHECKS[name](scenario, answer, words)
            if fault is not None:
                faults.append(f"{_how(stream)}: {name}: {fault}")
                if name == "answered":  # nothing else can be said of it
                    break
    return Result(scenario, form, tuple(faults))


def _rest(answer: Answer) -> None:
    """Wait as long as the gateway asks: a provider that said 429 may be left alone until then."""
    wait = answer.headers.get("retry-after", "")
    if wait.isdigit():
        time.sleep(min(int(wait), MAX_REST) + 0.1)


def _how(stream: bool) -> str:
    return "stream" if stream else "plain"


def _connect(gateway: Gateway) -> http.client.HTTPConnection:
    parts = urlsplit(gateway.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=PATIENCE)


def _send(gateway: Gateway, scenario: Scenario, form: Format, stream: bool) -> http.client.HTTPConnection:
    connection = _connect(gateway)
    key = "sk-wrong-key-for-conformance" if scenario.wrong_key else gateway.key
    body = body_of(scenario, form, gateway.model, stream)
    prefix = urlsplit(gateway.url).path.rstrip("/")
    connection.request("POST", prefix + PATHS[form], body, headers_of(form, key))
    return connection


def _exchange(gateway: Gateway, scenario: Scenario, form: Format, stream: bool) -> Answer:
    """Send and read to the end."""
    began = time.monotonic()
    connection = _send(gateway, scenario, form, stream)
    pieces: list[bytes] = []
    arrivals: list[tuple[float, int]] = []
    broken = ""
    try:
        response = connection.getresponse()
        arrivals.append((time.monotonic() - began, 0))
        try:
            while piece := response.read1(65536):
                pieces.append(piece)
                arrivals.append((time.monotonic() - began, len(piece)))
        except (http.client.HTTPException, ConnectionError) as error:
            broken = type(error).__name__
        except TimeoutError:
            broken = f"nothing came for {PATIENCE:.0f} s"
        headers = {name.lower(): value for name, value in response.getheaders()}
        headers["x-asked-model"] = scenario.model or gateway.model
        seconds = time.monotonic() - began
        return Answer(
            form,
            stream,
            response.status,
            headers,
            b"".join(pieces),
            arrivals,
            seconds,
            broken,
            _next(gateway, scenario, form),
        )
    except http.client.HTTPException as error:
        raise OSError(type(error).__name__) from None
    finally:
        connection.close()


def _next(gateway: Gateway, scenario: Scenario, form: Format) -> float:
    """How long a small request takes after clients have left."""
    if not scenario.leavers:
        return 0.0
    small = Scenario(id="small", title="", prompt="fast: hello", ask="plain", checks=())
    began = time.monotonic()
    connection = _send(gateway, small, form, False)
    try:
        connection.getresponse().read()
    finally:
        connection.close()
    return time.monotonic() - began


def _leave(gateway: Gateway, scenario: Scenario, form: Format) -> None:
    """Send, hear the beginning at most for a moment, and go."""
    connection = _send(gateway, scenario, form, True)
    if connection.sock is not None:
        connection.sock.settimeout(0.05)
        with suppress(OSError):
            connection.sock.recv(1, socket.MSG_PEEK)
    connection.close()
