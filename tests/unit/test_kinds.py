"""The endpoints beside chat: what travels, what is refused, failover before the first byte, and what is measured."""

import json
import struct
from contextlib import suppress
from typing import Any

import pytest
from gateway_kit import KEY, Exchange, FakeCall, Rig, Script, error, plain, read_late
from hypothesis import given
from hypothesis import strategies as st

from kenari.catalog.models import ENDPOINTS, Price
from kenari.core.errors import KenariError, interrupted
from kenari.gateway.kinds.asks import SPOTS, read_ask, wave_seconds
from kenari.gateway.kinds.meter import Used, fee_of
from kenari.wire.multipart import BadForm, FormScanner, boundary_of, content_type_of

AUTH = {b"authorization": b"Bearer " + KEY.encode()}
PATHS = {spot.kind: path for path, spot in SPOTS.items()}
VECTORS = {
    "object": "list",
    "model": "vendor-model",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.1, 1e-7]}],
    "usage": {"prompt_tokens": 8, "total_tokens": 8},
}
PICTURES = {"created": 1, "data": [{"b64_json": "aGk="}, {"b64_json": "aGk="}]}
AUDIO = Script([(0, b"ID3"), (0, b"music"), (0, None)], 200, {b"content-type": b"audio/mpeg"})
BODIES: dict[str, dict[str, Any]] = {
    "embedding": {"input": "hello", "dimensions": 256},
    "image": {"prompt": "a bird", "n": 2, "size": "1024x1024"},
    "speech": {"input": "hello bird", "voice": "alloy"},
}
ANSWERS: dict[str, Script] = {"embedding": plain(VECTORS), "image": plain(PICTURES), "speech": AUDIO}


def ask(rig: Rig, kind: str, body: Any = None, **more: Any) -> Exchange:
    whole = {"model": "m", **(BODIES[kind] if body is None else body)}
    return rig.post(PATHS[kind], json.dumps(whole).encode(), AUTH | {b"content-type": b"application/json"}, **more)


def join(fields: list[tuple[str, bytes]], boundary: bytes = b"xyz") -> bytes:
    """A form as clients send it; the field `file` is one."""
    parts = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
        % (boundary, name.encode(), b'; filename="a.wav"' if name == "file" else b"", content)
        for name, content in fields
    ]
    return b"".join(parts) + b"--%b--\r\n" % boundary


def split(body: bytes, boundary: bytes = b"xyz", step: int = 1 << 20) -> list[tuple[str, bytes]]:
    """The fields of a form, read in pieces of `step` bytes."""
    scanner = FormScanner(boundary)
    for at in range(0, len(body), step):
        scanner.feed(body[at : at + step])
    scanner.close()
    return [(part.name, body[part.start : part.end]) for part in scanner.parts]


def form(**fields: bytes) -> tuple[bytes, bytes]:
    return join(list(fields.items())), b"multipart/form-data; boundary=xyz"


def transcribe(rig: Rig, **fields: bytes) -> Exchange:
    body, kind = form(**({"model": b"m", "file": wave(2.0)} | fields))
    return rig.post(PATHS["transcription"], body, AUTH | {b"content-type": kind})


def wave(seconds: float, rate: int = 8000) -> bytes:
    data = bytes(int(rate * seconds))
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate, 1, 8)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVE" + head + b"data" + struct.pack("<I", len(data)) + data


@pytest.mark.parametrize("kind", BODIES)
def test_a_request_of_each_kind_travels_as_it_is(kind: str) -> None:
    """But for the model's name; the answer comes back under the caller's own."""
    rig = Rig(ANSWERS[kind], kind=kind)
    got = ask(rig, kind)
    assert got.status == 200
    assert rig.upstream.sent == [{"model": "vendor-model", **BODIES[kind]}]
    assert rig.upstream.requests[0].url == "http://p1/v1" + SPOTS[PATHS[kind]].upstream_path  # type: ignore[index]
    assert b"authorization: Bearer sk-p1" in rig.upstream.requests[0].headers
    assert KEY.encode() not in rig.upstream.requests[0].headers
    if kind == "speech":
        assert (got.out, got.header["content-type"], got.ended) == (b"ID3music", "audio/mpeg", True)
    else:
        assert got.json["data"] == (VECTORS if kind == "embedding" else PICTURES)["data"]
        assert got.json.get("model", "m") == "m"
    assert got.header_lines["x-kenari-target"] == "p1/vendor-model"
    [line] = rig.books.lines
    assert (line.ending, line.status, line.client_format, rig.books.open) == ("done", 200, kind, 0)


def test_a_form_travels_with_the_models_name_changed_and_the_file_as_it_is() -> None:
    audio = wave(1.0) + b"\r\n--xy\r\n\xff"
    rig = Rig(plain({"text": "hello"}), kind="transcription")
    got = transcribe(rig, file=audio, language=b"id")
    assert got.json == {"text": "hello"}
    sent = rig.upstream.requests[0]
    assert split(rig.upstream.calls[0].streamed) == [("model", b"vendor-model"), ("file", audio), ("language", b"id")]
    assert sent.body == b""
    assert b"content-type: multipart/form-data; boundary=xyz\r\n" in sent.headers


@pytest.mark.parametrize("kind", ["text/plain", "text/vtt", "application/x-subrip"])
def test_a_transcript_may_be_text(kind: str) -> None:
    script = Script([(0, b"hello\n"), (0, None)], 200, {b"content-type": kind.encode()})
    got = transcribe(Rig(script, kind="transcription"), response_format=b"text")
    assert (got.status, got.out, got.header["content-type"]) == (200, b"hello\n", kind)


BROKEN: list[Any] = [
    KenariError("upstream_unavailable", "x"),
    error(500),
    error(429),
    error(401),
    plain({"error": {"message": "no", "code": 500}}),
    plain([]),
    Script([(0, None)]),
    Script([(0, b"<html>"), (0, None)], 200, {b"content-type": b"text/html"}),
    Script([(0, interrupted())]),
    Script([(0, b'data: {"error":{"message":"x"}}\n\n'), (0, None)]),
]


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("first", BROKEN, ids=range(len(BROKEN)))
def test_a_failure_before_the_first_byte_moves_on(kind: str, first: Any) -> None:
    """D7 holds here too: one clean answer, both attempts in the line, one billed."""
    rig = Rig(first, ANSWERS[kind], kind=kind)
    got = ask(rig, kind)
    assert got.status == 200
    assert b"error" not in got.out
    assert b"<html>" not in got.out
    assert [leg.billed for leg in rig.books.lines[0].legs] == [False, True]


def test_a_failure_after_the_first_byte_is_no_clean_end_d16() -> None:
    script = Script([(0, b"ID3"), (0.01, interrupted())], 200, {b"content-type": b"audio/mpeg"})
    rig = Rig(script, AUDIO, kind="speech")
    got = ask(rig, "speech")
    assert (got.out, got.aborted, got.ended) == (b"ID3", True, False)
    assert len(rig.upstream.requests) == 1
    assert (rig.books.lines[0].ending, rig.books.lines[0].code) == ("failed", "stream_interrupted")


def test_the_only_providers_error_is_told_in_the_openai_envelope() -> None:
    got = ask(Rig(error(400, "dimensions must be below 9"), kind="embedding"), "embedding")
    assert (got.status, got.json["error"]["code"]) == (400, "bad_request")
    assert "dimensions" in got.json["error"]["message"]
    got = ask(Rig(error(503), kind="image"), "image")
    assert (got.status, got.header["retry-after"]) == (503, "2")


def test_a_silent_provider_is_left_in_time() -> None:
    rig = Rig(Script(head_after=5), ANSWERS["embedding"], kind="embedding")
    rig.timing["header_timeout"] = 0.1
    assert ask(rig, "embedding").status == 200
    assert rig.upstream.calls[0].aborted


@pytest.mark.parametrize("kind", ["embedding", "image", "speech", "transcription"])
@pytest.mark.parametrize("model_kind", ENDPOINTS)
def test_s173_a_model_of_another_kind_is_400_and_names_its_endpoint(kind: str, model_kind: str) -> None:
    """A chat model here, an image model there: nobody is called and nothing is held (S175)."""
    rig = Rig(plain({"text": "x"}) if kind == "transcription" else ANSWERS[kind], kind=model_kind)
    got = transcribe(rig) if kind == "transcription" else ask(rig, kind)
    if kind == model_kind:
        assert got.status == 200
        return
    assert (got.status, got.json["error"]["code"], got.json["error"]["param"]) == (400, "bad_request", "model")
    assert ENDPOINTS[model_kind] in got.json["error"]["message"]
    assert rig.upstream.requests == []
    assert rig.books.lines[0].ending == "refused"


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        ("embedding", {}, "input"),
        ("embedding", {"input": ""}, "input"),
        ("embedding", {"input": []}, "input"),
        ("embedding", {"input": ["a", ""]}, "input"),
        ("embedding", {"input": [1, "a"]}, "input"),
        ("embedding", {"input": "x", "model": None}, "model"),
        ("image", {"prompt": 4}, "prompt"),
        ("image", {"prompt": "x", "n": 0}, "n"),
        ("image", {"prompt": "x", "n": True}, "n"),
        ("speech", {"input": ["a"]}, "input"),
    ],
)
def test_what_is_wrong_is_400_and_names_the_field(kind: str, body: dict[str, Any], param: str) -> None:
    got = ask(Rig(ANSWERS[kind], kind=kind), kind, body)
    assert (got.status, got.json["error"]["param"]) == (400, param)


def test_other_bodies_are_refused() -> None:
    rig = Rig(ANSWERS["embedding"], kind="embedding")
    assert rig.post(PATHS["embedding"], b"[", AUTH).status == 400
    assert rig.post(PATHS["embedding"], b"{}", {}).status == 401
    assert rig.post(PATHS["embedding"], b"", AUTH, "GET").status == 405
    rig = Rig(plain({"text": "x"}), kind="transcription")
    assert rig.post(PATHS["transcription"], b"{}", AUTH | {b"content-type": b"application/json"}).status == 415
    body, kind = form(model=b"m")
    assert rig.post(PATHS["transcription"], body, AUTH | {b"content-type": kind}).json["error"]["param"] == "file"
    assert rig.post(PATHS["transcription"], body[:-9], AUTH | {b"content-type": kind}).status == 400
    assert rig.post(PATHS["transcription"], body, AUTH | {b"content-type": b"multipart/form-data"}).status == 400
    assert transcribe(Rig(plain({"text": "x"}), kind="transcription"), model=b" ").json["error"]["param"] == "model"


def fee(rig: Rig) -> tuple[int, int, int, bool]:
    leg = rig.books.lines[0].legs[-1]
    return leg.usage.prompt, leg.usage.output or 0, leg.fee, leg.usage.estimated


def test_what_is_measured_and_paid_s161() -> None:
    """Tokens as the provider says, images by their number, speech by its characters, audio by its seconds."""
    rig = Rig(plain(VECTORS), kind="embedding")
    ask(rig, "embedding")
    assert fee(rig) == (8, 0, 0, False)
    rig = Rig(plain({"data": VECTORS["data"]}), kind="embedding")
    ask(rig, "embedding", {"input": ["hello there", "bird"]})
    assert fee(rig) == (4, 0, 0, True)  # U3
    rig = Rig(plain(PICTURES), kind="image", price=Price(image="0.04"))
    ask(rig, "image")
    assert fee(rig) == (0, 0, 80_000_000, False)
    rig = Rig(plain(PICTURES | {"usage": {"input_tokens": 5, "output_tokens": 900}}), kind="image")
    ask(rig, "image")
    assert fee(rig) == (5, 900, 0, False)
    rig = Rig(AUDIO, kind="speech", price=Price(character="15"))
    ask(rig, "speech", {"input": "zwölf Vögel"})
    assert fee(rig) == (0, 0, 11 * 15_000, False)
    for answer, seconds in (
        ({"text": "x"}, 2.0),
        ({"text": "x", "duration": 3.5}, 3.5),
        ({"text": "x", "usage": {"type": "duration", "seconds": 4}}, 4.0),
    ):
        rig = Rig(plain(answer), kind="transcription", price=Price(second="0.0001"))
        transcribe(rig)
        assert fee(rig)[2] == round(seconds * 100_000)
    rig = Rig(
        plain({"text": "x", "usage": {"type": "tokens", "input_tokens": 7, "output_tokens": 2}}), kind="transcription"
    )
    transcribe(rig)
    assert fee(rig) == (7, 2, 0, False)


def test_a_fee_is_rounded_up_once_f9() -> None:
    assert fee_of(Price(character="0.001"), Used(characters=1)) == 1
    assert fee_of(Price(second="0.0000000001"), Used(seconds=0.5)) == 1
    assert fee_of(Price(image="0.1", second="1"), Used(images=3, seconds=0.25)) == 550_000_000
    assert fee_of(None, Used(images=3)) == 0


def test_events_pass_and_their_usage_is_read() -> None:
    events = (
        b'event: transcript.text.delta\ndata: {"type":"transcript.text.delta","delta":"hi"}\n\n'
        b'event: transcript.text.done\ndata: {"type":"transcript.text.done","text":"hi",'
        b'"usage":{"type":"tokens","input_tokens":9,"output_tokens":1}}\n\n'
    )
    script = Script([(0, events[:40]), (0, events[40:]), (0, None)])
    rig = Rig(script, kind="transcription")
    got = transcribe(rig, stream=b"true")
    assert got.out == events
    assert got.header["content-type"] == "text/event-stream"
    assert fee(rig)[:2] == (9, 1)


def test_an_error_among_the_events_is_told_in_the_line() -> None:
    """The client has it as it came; the candidate has failed."""
    events = b'data: {"type":"a"}\n\ndata: {"type":"error","error":{"message":"x"}}\n\n'
    rig = Rig(Script([(0, events[:30]), (0, events[30:]), (0, None)]), kind="transcription")
    got = transcribe(rig, stream=b"true")
    assert (got.out, got.ended) == (events, True)
    assert rig.books.lines[0].code == "stream_interrupted"


def test_a_client_that_goes_cancels_its_provider_u6() -> None:
    rig = Rig(Script([(0, b"ID3"), (5, b"x")], 200, {b"content-type": b"audio/mpeg"}), AUDIO, kind="speech")
    got = ask(rig, "speech", act=Exchange.leave)
    assert rig.upstream.calls[0].aborted
    assert len(rig.upstream.requests) == 1
    assert rig.books.lines[0].ending == "client_closed"
    assert got.out == b"ID3"


@pytest.mark.parametrize(
    ("kind", "price", "tokens", "paid"),
    [
        ("embedding", Price(input="1"), 3, 0),
        ("image", Price(image="1"), 0, 0),
        ("speech", Price(character="1000"), 0, 11_000_000),
    ],
)
def test_an_abandoned_call_is_billed_what_was_sent_f7(kind: str, price: Price, tokens: int, paid: int) -> None:
    """Nothing shows when a provider begins; who leaves before the answer pays the input, not what was to come."""
    rig = Rig(Script(head_after=5), kind=kind, price=price)
    text = {"prompt" if kind == "image" else "input": "hello there"}
    ask(rig, kind, text, act=Exchange.leave)
    line = rig.books.lines[0]
    leg = line.legs[0]
    assert (line.ending, leg.outcome, leg.billed) == ("client_closed", "client_closed", True)
    assert (leg.usage.prompt, leg.fee) == (tokens, paid)
    assert line.usage == leg.usage


def test_a_call_that_had_no_connection_yet_is_not_billed_u5(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was sent, so nothing can have begun."""
    monkeypatch.setattr(FakeCall, "sent", False)
    rig = Rig(Script(head_after=5), kind="speech", price=Price(character="1000"))
    ask(rig, "speech", act=Exchange.leave)
    line = rig.books.lines[0]
    assert (line.ending, [leg.billed for leg in line.legs], line.charge) == ("client_closed", [False], 0)


def test_a_provider_that_waits_for_a_slow_reader_is_not_silent() -> None:
    rig = Rig(Script([(0, b"ID3"), (0.8, b"x"), (0, None)], 200, {b"content-type": b"audio/mpeg"}), kind="speech")
    rig.timing["idle_timeout"] = 0.4
    assert ask(rig, "speech", act=read_late).out == b"ID3x"
    assert rig.books.lines[0].ending == "done"


def test_a_slow_reader_pauses_its_provider() -> None:
    def act(exchange: Exchange) -> None:
        assert exchange.watcher is not None
        exchange.watcher.on_pause()
        exchange.watcher.on_resume()

    rig = Rig(Script([(0, b"ID3"), (0.1, b"x"), (0, None)], 200, {b"content-type": b"audio/mpeg"}), kind="speech")
    ask(rig, "speech", act=act)
    assert rig.upstream.calls[0].pauses == [True, False]


def test_a_messages_provider_has_no_such_endpoint() -> None:
    rig = Rig(ANSWERS["embedding"], kind="embedding", dialect="messages")
    got = ask(rig, "embedding")
    assert (got.status, got.header["x-should-retry"]) == (502, "false")
    assert rig.upstream.requests == []


names = st.text("abcdefghijklmnop_", min_size=1, max_size=12)


@given(st.lists(st.tuples(names, st.binary(max_size=200)), min_size=1, max_size=5), st.integers(1, 80))
def test_forms_come_back_as_they_were_however_they_are_cut(fields: list[tuple[str, bytes]], step: int) -> None:
    if any(b"--boundary" in content for _, content in fields):
        return
    assert split(join(fields, b"boundary-1234"), b"boundary-1234", step) == fields


@given(st.binary(max_size=300), st.integers(1, 300))
def test_no_bytes_break_the_reader_of_forms(data: bytes, step: int) -> None:
    for body in (data, b"--b\r\n" + data + b"\r\n--b--"):
        with suppress(BadForm):
            split(body, b"b", step)


HEAD = b'content-disposition: form-data; name="model"'


@pytest.mark.parametrize(
    "body",
    [
        b"hello\r\n--b\r\n%b\r\n\r\n1\r\n--b--" % HEAD,
        b"--b\r\n%b\r\n\r\n1\r\n--b--\r\n--b\r\n%b\r\n\r\n2\r\n--b--" % (HEAD, HEAD),
        b"--b\r\n%b\r\n\r\n1\n--b\n%b\n\n2\r\n--b--" % (HEAD, HEAD),
        b"--b\r\n%b; name=other\r\n\r\n1\r\n--b--" % HEAD,
        b"--b\r\n%b\r\n%b\r\n\r\n1\r\n--b--" % (HEAD, HEAD),
        b"--b\r\n%b; name*=utf-8''x\r\n\r\n1\r\n--b--" % HEAD,
        b'--b\r\ncontent-disposition: form-data; name="mo\\del"\r\n\r\n1\r\n--b--',
        b'--b\r\ncontent-disposition: form-data;\r\n name="model"\r\n\r\n1\r\n--b--',
        b'--b\r\ncontent-disposition: attachment; name="model"\r\n\r\n1\r\n--b--',
        b"--b\r\n%b\nx: y\r\n\r\n1\r\n--b--" % HEAD,
        b"--b\r\n%b\r\n--b--" % HEAD,
        b"--b x\r\n%b\r\n\r\n1\r\n--b--" % HEAD,
        b"--b\r\n%b\r\n\r\n1\r\n--b" % HEAD,
        b"--b\r\n%b\r\n\r\n1\r\n--b--" % (HEAD + b"x" * 9000),
        b"--b\r\n%b\r\n\r\n1\r\n" % HEAD * 101 + b"--b--",
        b"--b" + b" " * 300,
        b"--b--" + b" " * 300,
    ],
)
def test_what_two_readers_could_take_for_different_forms_is_refused(body: bytes) -> None:
    """Else a provider could find another model in it than the one that was asked for and is paid."""
    for step in (1, 7, 1 << 20):
        with pytest.raises(BadForm):
            split(body, b"b", step)
    assert split(b"--b\r\n%b\r\n\r\n1\r\n--b--" % HEAD, b"b") == [("model", b"1")]


def test_boundaries() -> None:
    assert boundary_of(b'multipart/form-data; boundary="a b"; x=1') == b"a b"
    assert boundary_of(b"multipart/form-data; Boundary=----x") == b"----x"
    assert boundary_of(b"multipart/form-data;charset=utf-8;boundary=x;") == b"x"
    for bad in (
        b"",
        b"; boundary=",
        b"; boundary=a; boundary=b",
        b'; boundary="a',
        b"; xboundary=a",
        b'; boundary="a\\b"',
    ):
        with pytest.raises(BadForm):
            boundary_of(b"multipart/form-data" + bad)
    for boundary in (b"xyz", b"a b", b"a/b=c"):
        assert boundary_of(content_type_of(boundary)) == boundary


def test_how_long_a_wave_plays() -> None:
    assert seconds_of(wave(1.5)) == 1.5
    assert seconds_of(wave(1.5)[:-4000]) == 1.0  # cut: what is there
    for data in (b"", b"RIFF", b"RIFF0000WAVE", b"ID3" * 20, b"RIFF0000WAVEdata" + bytes(8)):
        assert seconds_of(data) is None
    assert wave_seconds(wave(9.0)[:100], len(wave(9.0))) == 9.0  # its beginning is enough


def seconds_of(data: bytes) -> float | None:
    return wave_seconds(data, len(data))


def test_ids_of_tokens_count_as_tokens() -> None:
    def count(ids: Any) -> int:
        return read_ask("embedding", json.dumps({"model": "m", "input": ids}).encode()).tokens

    assert (count([1, 2, 3]), count([[1, 2], [3]])) == (3, 3)
