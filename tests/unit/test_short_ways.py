"""Short ways give what the long ones give: each fast path is held to the general one on whatever Hypothesis finds."""

import json
from typing import Any
from unittest import mock

import msgspec
from chat_kit import ID, answer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from texts_kit import BROKEN, SPELLED, WHOLE

from kenari.core.errors import KenariError
from kenari.core.events import Event, Meter, Stop
from kenari.core.fold import fold
from kenari.core.ids import Envelopes
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.core.usage import MOST
from kenari.dialects.base import Named
from kenari.dialects.chat import CHAT
from kenari.dialects.chat import request as chat_request
from kenari.dialects.chat.decode import ChatDecoder, decode_reply
from kenari.dialects.chat.opening import plain_chunk
from kenari.dialects.chat.plain import plain_answer
from kenari.dialects.chat.request import decode_request
from kenari.dialects.chat.wire import CHUNK, CompletionDetails, PromptDetails, UsageSeen, UsageWire, usage_of
from kenari.dialects.fields import Fields
from kenari.dialects.fit import Target, fit
from kenari.dialects.frames import read_frame
from kenari.wire import jsonx
from kenari.wire.sse import Frame, Frames

NAMED = Named(ID, 1790000000, b'"step-3-7-flash:free"')
TEXTS = st.text(max_size=8) | st.sampled_from(["", "\x00", '"', "\\", "\ud800", "é", "😀", "a\nb", "data: x"])
EMPTY: st.SearchStrategy[Any] = st.sampled_from(["[]", "{}"]).map(json.loads)
ODD: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-2, 3) | TEXTS | EMPTY


def dumped(value: Any, ascii_only: bool) -> bytes:
    """JSON in one of its two spellings; lone halves are always escaped."""
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


MESSAGES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXTS},
    optional={"name": TEXTS},
) | st.fixed_dictionaries({}, optional={"role": ODD, "content": ODD | st.just([{"type": "text", "text": "x"}])})
BODIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"model": TEXTS, "messages": st.lists(MESSAGES, max_size=3)},
    optional={
        "stream": st.booleans() | ODD,
        "stream_options": ODD,
        "temperature": st.floats(0, 2) | ODD,
        "max_tokens": st.integers(1, 20),
        "stop": TEXTS | st.lists(TEXTS, max_size=2),
        "n": st.just(1),
        "user": TEXTS,
        "tool_choice": st.sampled_from(["auto", "none"]),
        "parallel_tool_calls": st.booleans(),
        "logprobs": st.booleans(),
        "metadata": st.just({}),
        "prompt_cache_key": TEXTS,
        "reasoning_effort": st.just("low"),
        "unheard_of": ODD,
    },
)


def outcome(make: Any) -> Any:
    """A value, or the error that its making ended with."""
    try:
        return make()
    except KenariError as error:
        return error.code, error.message, error.param


@given(body=BODIES, ascii_only=st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_plain_request_is_read_as_any_other(body: dict[str, Any], ascii_only: bool) -> None:
    raw = dumped(body, ascii_only)

    def slowly() -> Request:
        return chat_request._decode(Fields(jsonx.request_fields(raw)))  # pyright: ignore[reportPrivateUsage]

    fast, slow = outcome(lambda: decode_request(raw)), outcome(slowly)
    if isinstance(fast, Request) and isinstance(slow, Request):
        fast.plain = slow.plain = False
    assert fast == slow


@given(
    body=BODIES,
    profile=st.builds(
        Profile,
        system_first_only=st.booleans(),
        default_max_tokens=st.booleans(),
        stream_usage=st.booleans(),
        max_tokens_field=st.sampled_from(["max_tokens", "max_completion_tokens", "none"]),
        temperature_max=st.none() | st.just(1.0),
        extra_fields=st.booleans(),
        logprobs=st.booleans(),
        developer_role=st.booleans(),
    ),
)
@settings(max_examples=300, deadline=None)
def test_a_plain_request_is_fitted_and_written_as_any_other(body: dict[str, Any], profile: Profile) -> None:
    try:
        request = decode_request(dumped(body, True))
    except KenariError:
        return
    target = Target(dialect="chat", model="theirs", profile=profile, maker="m", envelopes=Envelopes(b"k"), max_output=9)
    slow = msgspec.structs.replace(request, plain=False)
    short, long = fit(request, target), fit(slow, target)
    assert msgspec.structs.replace(short, plain=False) == long
    assert apart(CHAT.encode_request(short, profile)) == apart(CHAT.encode_request(long, profile))


def apart(body: bytes) -> list[tuple[str, list[bytes]]]:
    """The members of a request in their order, its messages byte for byte; what stands between messages is left out."""
    return [
        (name, [bytes(one) for one in (jsonx.elements(raw) if name == "messages" else [raw])])
        for name, raw in jsonx.members(body).items()
    ]


@given(body=BODIES, ascii_only=st.booleans(), conversation=st.lists(MESSAGES, max_size=2))
@settings(max_examples=400, deadline=None)
@example({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": False}, True, [])
@example({"model": "m", "messages": [{"role": "user", "content": "\ud800"}]}, True, [])
@example({"model": "m", "messages": [{"role": "user", "content": "x"}], "stop": ["]"]}, True, [])
@example({"model": '"messages":[', "messages": [{"role": "user", "content": "x"}]}, True, [])
def test_another_conversation_takes_the_place_of_one(
    body: dict[str, Any], ascii_only: bool, conversation: list[Any]
) -> None:
    """F2, L10: where a conversation of ours is what is read between two pieces, any one of texts is read there too."""
    cut = CHAT.cut(dumped(body, ascii_only))
    if cut is None:
        return
    assert cut.before + cut.conversation + cut.after == dumped(body, ascii_only)
    sample = outcome(lambda: decode_request(cut.before + CHAT.SAMPLE + cut.after))
    if not isinstance(sample, Request) or not sample.plain:
        return
    if [turn.raw for turn in sample.turns] != [CHAT.SAMPLE[1:-1]]:
        return
    for one in (cut.conversation, dumped(conversation, ascii_only)):
        if CHAT.is_texts(one):
            request = decode_request(cut.before + one + cut.after)
            assert request.plain
            assert bytes(request.fields["messages"]) == one
            assert msgspec.structs.replace(request, turns=[], fields={}) == msgspec.structs.replace(
                sample, turns=[], fields={}
            )


COUNT = st.none() | st.sampled_from([0, 1, 3, 5, 8, -1, MOST, MOST + 1])


@given(
    wire=st.builds(
        UsageWire,
        prompt_tokens=COUNT,
        completion_tokens=COUNT,
        total_tokens=COUNT,
        prompt_cache_hit_tokens=st.none() | COUNT,
        cached_tokens=st.none() | COUNT,
        prompt_tokens_details=st.none() | st.builds(PromptDetails, cached_tokens=COUNT, cache_write_tokens=COUNT),
        completion_tokens_details=st.none() | st.builds(CompletionDetails, reasoning_tokens=COUNT),
    )
)
@settings(max_examples=400, deadline=None)
def test_u1_usage_that_is_reported_once_is_what_repeated_reports_make_of_it(wire: UsageWire) -> None:
    assert usage_of(wire) == UsageSeen().take(wire)


def test_which_conversations_are_texts() -> None:
    """The short way is taken."""
    assert CHAT.is_texts(CHAT.SAMPLE)
    assert CHAT.is_texts(b'[{"role":"system","content":"a"}, {"role":"user","content":"caf\xc3\xa9 \\n"}]')
    for other in (b"[]", b'[{"role":"tool","content":"a"}]', b'[{"role":"user","content":[]}]', b'["a"]', b"[", b""):
        assert not CHAT.is_texts(other)
    assert not CHAT.is_texts(b'[{"role":"user","content":"\\ud800"}]')
    assert not CHAT.is_texts(b'[{"role":"user","content":"\xff"}]')
    assert CHAT.cut(b'{"model":"m"}') is None
    assert CHAT.cut(b'{"messages":"]"}') is None


WORDS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"content": TEXTS},
    optional={
        "role": st.just("assistant"),
        "refusal": ODD,
        "reasoning": ODD | st.just("null"),
        "tool_calls": st.none() | st.just([]),
    },
)
COUNTS = st.none() | st.integers(-1, 9)
USAGES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": COUNTS,
        "completion_tokens": COUNTS,
        "total_tokens": COUNTS,
        "cached_tokens": COUNTS,
        "prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": COUNTS}),
        "completion_tokens_details": st.none() | st.fixed_dictionaries({"reasoning_tokens": COUNTS}),
    },
)
ANSWERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {
                    "message": WORDS,
                    "finish_reason": st.sampled_from(["stop", "length", "tool_calls", "error", "eos"]) | ODD,
                },
                optional={
                    "index": ODD,
                    "logprobs": st.none() | st.fixed_dictionaries({"content": EMPTY}),
                    "stop_reason": ODD,
                },
            ),
            max_size=2,
        )
    },
    optional={"usage": USAGES | ODD, "error": ODD, "id": TEXTS},
)


def slow_reply(body: bytes) -> list[Event]:
    """The general reader, by an id that keeps it from the short way."""
    chunk, _ = read_frame(CHUNK, body)
    assert chunk is not None
    assert chunk.choices
    return ChatDecoder(Profile(), ID).take(chunk, body)


@given(reply=ANSWERS, ascii_only=st.booleans())
@settings(max_examples=400, deadline=None)
@example({"choices": [{"message": {"content": "x", "reasoning": "null"}, "finish_reason": "stop"}]}, True)
def test_a_plain_answer_is_read_as_any_other(reply: dict[str, Any], ascii_only: bool) -> None:
    body = dumped(reply, ascii_only)
    if plain_answer(body) is not None:
        assert decode_reply(body, Profile(), ID) == slow_reply(body)


@given(reply=ANSWERS, ascii_only=st.booleans())
@settings(max_examples=400, deadline=None)
@example(
    {
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    },
    True,
)
def test_an_answer_that_passes_is_what_decoding_and_encoding_make(reply: dict[str, Any], ascii_only: bool) -> None:
    """L4, L6: the one step says what the three say."""
    body = dumped(reply, ascii_only)
    passed = CHAT.pass_reply(body, NAMED, Profile())
    if passed is None:
        return
    events = slow_reply(body)
    assert passed.body == CHAT.encode_reply(fold(events), answer())
    assert passed.usage == next(event.usage for event in events if isinstance(event, Meter))
    assert passed.stop == next(event for event in events if isinstance(event, Stop))
    assert passed.size == len(fold(events).blocks[0].text)


def test_most_answers_do_pass() -> None:
    """The short ways are taken."""
    body = (
        b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"caf\xc3\xa9 \\n","refusal":null},'
        b'"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,'
        b'"prompt_tokens_details":{"cached_tokens":0}}}'
    )
    assert CHAT.pass_reply(body, NAMED, Profile()) is not None
    assert CHAT.pass_reply(body, NAMED, Profile(think_tags=True)) is None
    assert decode_request(b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}').plain


CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}


def piece_chunk(text: str) -> Any:
    """A chunk of one piece of text."""
    return {"choices": [{"delta": {"content": text}}]}


DELTA: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "role": st.just("assistant"),
        "content": TEXTS | st.none() | st.just("null"),
        "refusal": ODD,
        "reasoning": st.none() | TEXTS,
        "reasoning_details": ODD,
        "tool_calls": st.none() | st.just([CALL]),
        "function_call": ODD,
    },
)
CHOICE: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"delta": DELTA},
    optional={
        "index": ODD,
        "message": st.none() | DELTA,
        "finish_reason": st.none() | st.sampled_from(["", "stop", "error"]),
        "logprobs": st.none() | EMPTY,
        "usage": st.none() | USAGES,
    },
)
CHUNKS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"choices": st.lists(CHOICE, max_size=2)},
    optional={"usage": USAGES | ODD, "error": ODD, "x_groq": ODD, "obfuscation": TEXTS},
)


@given(
    chunks=st.lists(CHUNKS | st.builds(piece_chunk, TEXTS), max_size=4),
    ascii_only=st.booleans(),
    tags=st.booleans(),
)
@settings(max_examples=600, deadline=None)
@example([piece_chunk("a")] * 2, True, True)
@example([{"choices": [{"delta": {}}], "obfuscation": "\ud800"}, piece_chunk("a"), piece_chunk("a")], True, False)
@example([{"choices": [{"delta": {}, "finish_reason": "stop"}]}, piece_chunk("a")], True, False)
@example([{"choices": [{"delta": {"tool_calls": [CALL]}}]}, piece_chunk("a")], True, False)
def test_a_plain_chunk_is_read_as_any_other(chunks: list[Any], ascii_only: bool, tags: bool) -> None:
    """L1, F2: the short way gives the same events, and the same form of what follows."""
    short, long = ChatDecoder(Profile(think_tags=tags), ID), ChatDecoder(Profile(think_tags=tags), ID)
    for chunk in chunks:
        frame = Frame(b"", dumped(chunk, ascii_only))
        events = [*map(repr, short.feed(frame))]
        with mock.patch("kenari.dialects.chat.decode.plain_chunk", return_value=None):
            assert events == [*map(repr, long.feed(frame))]
        assert short.steady() == long.steady()


def test_most_streams_begin_with_plain_chunks() -> None:
    """The short way is taken."""
    around = b'{"id":"x","choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":null}],"usage":null}'
    assert plain_chunk(around % b'{"role":"assistant","content":"","refusal":null}') == b""
    assert plain_chunk(around % b'{"role":"assistant"}') == b""
    assert plain_chunk(around % '{"content":"café \\n"}'.encode()) == "café \\n".encode()
    assert plain_chunk(around % b'{"content":"\xff"}') is None
    assert plain_chunk(around % b'{"content":[]}') is None
    assert plain_chunk(b'{"choices":[]}') is None


PIECES: st.SearchStrategy[list[str | bytes]] = st.lists(TEXTS | SPELLED, max_size=12)
FORM = b'{"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}'


@given(
    texts=PIECES,
    extra=st.lists(st.sampled_from([b"{}", b"", b"[DONE]", b'{"error":{"message":"x"}}', b"x"]), max_size=2),
)
@settings(max_examples=300, deadline=None)
@example(["a"] * 12, [b"[DONE]"])
@example(["a", "b", "", "c", "d", "e", "f"], [])
@example(["a", "b", "c", "d", 'e"}},{', "f", "g", "h"], [])
@example(["a", *WHOLE], [])
@example(["a", *WHOLE, *BROKEN, "a", "b"], [])
def test_frames_that_come_together_are_read_as_one_by_one(texts: list[str | bytes], extra: list[bytes]) -> None:
    """L1: a run of deltas that is cut out at once gives the same events."""
    chunks = [FORM % (text if isinstance(text, bytes) else dumped(text, True)[1:-1]) for text in texts]
    frames = [Frame(b"", data) for data in chunks + extra + chunks]
    together, apart = ChatDecoder(Profile(), ID), ChatDecoder(Profile(), ID)
    one_by_one = [event for frame in frames for event in apart.feed(frame)]
    assert [*map(repr, together.feed_all(frames))] == [*map(repr, one_by_one)]  # errors are equal to themselves only


@given(
    data=st.lists(st.sampled_from([b"data: ", b"data:", b"\n", b"\n\n", b"a", b"event: x", b": c", b"\r"]), max_size=16)
)
@settings(max_examples=400, deadline=None)
def test_bytes_that_come_together_are_framed_as_one_by_one(data: list[bytes]) -> None:
    """L1: a read of nothing but data lines is split at once, with the same frames."""
    whole = b"".join(data)
    together, apart = Frames(), Frames()
    once = together.feed(whole) + together.flush()
    assert once == [frame for at in range(len(whole)) for frame in apart.feed(whole[at : at + 1])] + apart.flush()
