"""Lines of the log are put into words by forms (keeper/books.py): as if each record were written by itself."""

import io
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kenari.core.alike import Alike, Ended
from kenari.core.ports import Leg, Line
from kenari.core.price import Price
from kenari.core.request import Notice
from kenari.core.usage import Usage
from kenari.keeper.books import MAX_FORMS, LogBooks, Record, Tokens
from kenari.keeper.metrics import Metrics
from kenari.ledger.price import charge
from kenari.wire import jsonx

TEXTS = st.sampled_from(["", "a", "%s", "%%d", '"id":"', "\\", "é\n", "\ud800", "\x00", "{}", "null"])
COUNTS = st.none() | st.integers(0, 10**9)
TIMES = st.floats(0, 10**7)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
LINES = st.builds(
    Line,
    id=st.sampled_from(["0123456789abcdef", "x%s", "", "é"]),
    account=TEXTS,
    key=TEXTS,
    model=TEXTS,
    target=TEXTS,
    client_format=st.sampled_from(["chat", "responses"]),
    provider_format=st.sampled_from(["", "messages"]),
    stream=st.booleans(),
    status=st.sampled_from([0, 200, 499]),
    code=TEXTS,
    ending=st.sampled_from(["done", "failed", "crashed"]),
    usage=USAGES,
    legs=st.lists(st.builds(Leg, TEXTS, USAGES, TEXTS, TIMES), max_size=2),
    first_content_ms=st.none() | TIMES,
    duration_ms=TIMES,
    notices=st.lists(st.builds(Notice, TEXTS), max_size=1),
    peer=TEXTS,
    counted=TEXTS,
)


def record(time: str, line: Line) -> Record:
    """What is said of a line."""
    usage, first = line.usage, line.first_content_ms
    return Record(
        time=time,
        id=line.id,
        account=line.account,
        key=line.key,
        model=line.model,
        target=line.target,
        client=line.client_format,
        provider=line.provider_format,
        stream=line.stream,
        status=line.status,
        reason=line.ending,
        tokens=Tokens(
            input=usage.fresh or 0,
            cache_read=usage.cache_read or 0,
            cache_write=usage.cache_write,
            output=usage.output or 0,
        ),
        estimated=usage.estimated,
        first_content_ms=None if first is None else round(first, 2),
        duration_ms=round(line.duration_ms, 2),
        attempts=len(line.legs),
        peer=line.peer,
        code=line.code,
        counted=line.counted,
        notices=[notice.name for notice in line.notices],
    )


@given(lines=st.lists(LINES, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
@example([Line(id="a", key="%d"), Line(id="b", key="%d", duration_ms=2.345, usage=Usage(fresh=3))])
@example([Line(id="a", first_content_ms=0.0), Line(id="b"), Line(id="c", first_content_ms=1.005)])
def test_a_line_says_the_same_whichever_lines_came_before(lines: list[Line]) -> None:
    out, now = io.StringIO(), [0.0]
    books = LogBooks("json", lambda: now[0], lambda delay, call: None, out)
    times = [
        "1970-01-01T00:00:01.250Z",
        "1970-01-01T00:00:01.999Z",
        "2026-01-02T03:04:05.500Z",
        "1970-01-01T00:00:00.000Z",
    ]
    for number, line in enumerate(lines):
        now[0] = [1.25, 1.9999, 1767323045.5, 0.0][number]
        books.settle(None, line)
    books.flush()
    written = [json.loads(one) for one in out.getvalue().splitlines()]
    assert written == [json.loads(jsonx.encode(record(time, line))) for time, line in zip(times, lines, strict=False)]


PRICE = Price(version="p", input=3, output=5, cache_read=1, cache_write=2, cache_write_1h=4)
ALIKE = [
    Alike(
        Line(id="", account="a%", key="k", model="m", target="p/m", status=200, price=price, peer="192.0.2.1"), charge
    )
    for price in (None, PRICE)
]


@given(
    endings=st.lists(
        st.tuples(st.sampled_from(ALIKE), USAGES, st.sampled_from(["done", "length"]), st.floats(0, 1000)), min_size=1
    ),
    style=st.sampled_from(["json", "text"]),
)
def test_requests_that_ended_alike_are_logged_and_counted_as_their_lines(endings: list[Any], style: str) -> None:
    """U4: tokens, money and times too."""
    ended = [
        Ended(alike, f"{at:016x}", usage, ending, seconds) for at, (alike, usage, ending, seconds) in enumerate(endings)
    ]
    seen: list[tuple[str, bytes]] = []
    for made in (False, True):
        out, metrics = io.StringIO(), Metrics("USD", "1", lambda model: model)
        books = LogBooks(style, lambda: 5.0, lambda delay, call: None, out, metrics)
        for one in ended:
            books.settle_later(None, one() if made else one)
        books.flush()
        counted = metrics.render("")[0]
        seen.append((out.getvalue(), b"\n".join(one for one in counted.splitlines() if one.startswith(b"kenari_"))))
    assert seen[0] == seen[1]
    lines = [one() for one in ended]
    assert [line.charge for line in lines] == [
        charge(line.legs, line.price) if line.price is not None else 0 for line in lines
    ]


def test_what_clients_call_models_is_not_kept() -> None:
    """A name may be as long as a body, and is in the line of a request that was refused; forms are kept of short lines, and
    of so many."""
    out = io.StringIO()
    books = LogBooks("json", lambda: 0.0, lambda delay, call: None, out)
    names = [str(number) for number in range(MAX_FORMS + 1)] + [f"{number}{'%x' * 5000}" for number in range(50)]
    for name in names:
        books.settle(None, Line(id="a", model=name))
    books.flush()
    assert [json.loads(one)["model"] for one in out.getvalue().splitlines()] == names
    forms = books._forms  # pyright: ignore[reportPrivateUsage]
    assert 0 < len(forms) <= MAX_FORMS
    assert max(len(form) for form in forms.values()) < 5000
