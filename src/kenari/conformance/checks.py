"""The checks, one function each: what is wrong with an answer, in one line; None when nothing is."""

from base64 import b64decode
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

from kenari.conformance.observe import Answer, Frame, Json, Said
from kenari.conformance.scenario import IMAGE, TOOLS, Scenario
from kenari.wire import jsonx

Check: TypeAlias = Callable[[Scenario, Answer, Said], str | None]

LONGEST_SILENCE = 16.5
"""Seconds: proxies and clients give up on a connection that says nothing for longer."""
_LAST = {"messages": ("message_stop",), "responses": ("response.completed", "response.incomplete")}
_OWN_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "overloaded_error",
    "billing_error",
    "timeout_error",
}


def answered(_: Scenario, answer: Answer, __: Said) -> str | None:
    """Status 200 with the right kind of content, and the transfer came to its end."""
    if answer.status != 200:
        return f"status {answer.status}: {answer.body[:160].decode('utf-8', 'replace')}"
    wanted = "text/event-stream" if answer.stream else "application/json"
    if answer.headers.get("content-type", "").partition(";")[0] != wanted:
        return f"content-type is {answer.headers.get('content-type')!r}, not {wanted}"
    return f"the connection broke: {answer.cut}" if answer.cut else None


def framed(_: Scenario, answer: Answer, __: Said) -> str | None:
    """Frames as the format has them: chat has data only, the others name each event as its data does."""
    for frame in _frames(answer) if answer.stream else ():
        if answer.form == "chat":
            if frame.lines != ("data",):
                return f"a chat frame has the lines {', '.join(frame.lines)}"
            continue
        if frame.lines != ("event", "data"):
            return f"a frame has the lines {', '.join(frame.lines)}"
        if f'"{frame.event}"' not in frame.data:
            return f"the event {frame.event} holds another type"
    return None


def ended(_: Scenario, answer: Answer, __: Said) -> str | None:
    """The format's own last word, once, and nothing behind it."""
    if not answer.stream:
        return None
    frames = _frames(answer)
    if not frames:
        return "the stream is empty"
    if answer.form == "chat":  # its last word is no JSON
        count = sum(frame.data == "[DONE]" for frame in frames)
        return None if count == 1 and frames[-1].data == "[DONE]" else f"[DONE] comes {count} times or not last"
    last = answer.events()[-1][1].get("type") if answer.events() else ""
    if last not in _LAST[answer.form]:
        return f"the last event is {last or frames[-1].data[:40]}"
    return None


def _frames(answer: Answer) -> list[Frame]:
    """The frames to judge. Some Responses servers send a last `[DONE]`, as the specification's prose has it."""
    frames = answer.frames()
    extra = answer.form == "responses" and bool(frames) and frames[-1].data == "[DONE]"
    return frames[:-1] if extra else frames


def one_id(_: Scenario, __: Answer, words: Said) -> str | None:
    """One id over the whole answer."""
    return None if len(words.ids) == 1 else f"{len(words.ids)} ids"


def own_model(scenario: Scenario, answer: Answer, words: Said) -> str | None:
    """The model is called as the client called it."""
    asked = answer.headers.get("x-asked-model", "")
    return (
        None if set(words.models) == {asked} else f"asked for {asked}, answered by {', '.join(words.models) or 'none'}"
    )


def says(_: Scenario, __: Answer, words: Said) -> str | None:
    """There is text."""
    return None if words.text.strip() else "no text came"


def in_pieces(_: Scenario, answer: Answer, words: Said) -> str | None:
    """A stream brings its text in several pieces."""
    return "the text came in one piece" if answer.stream and words.pieces < 2 else None


def echoes(scenario: Scenario, _: Answer, words: Said) -> str | None:
    """Every character arrives."""
    return None if words.text == scenario.prompt else f"the text came as {words.text[:80]!r}"


def thinks(_: Scenario, __: Answer, words: Said) -> str | None:
    """Reasoning comes, and before the text."""
    if not words.reasoning:
        return "no reasoning came"
    return None if words.thought_first else "the reasoning came after the text"


def finished(_: Scenario, __: Answer, words: Said) -> str | None:
    """The finish is an ordinary stop."""
    return None if words.finish == "stop" else f"the finish is {words.finish or 'missing'}"


def calls(_: Scenario, __: Answer, words: Said) -> str | None:
    """Each call has an id of its own, a name that was offered, and a JSON object for arguments."""
    if not words.calls:
        return "no call came"
    ids = [call.id for call in words.calls]
    if len(set(ids)) < len(ids) or not all(ids):
        return f"the calls' ids are {ids}"
    for call in words.calls:
        if call.name not in TOOLS:
            return f"a tool {call.name!r} was called that was not offered"
        try:
            if jsonx.kind(call.arguments.encode()) != "object" or not isinstance(
                jsonx.value(call.arguments.encode()), dict
            ):
                return f"the arguments are {call.arguments[:60]!r}"
        except jsonx.Malformed:
            return f"the arguments are no JSON: {call.arguments[:60]!r}"
    return None


def calls_two(_: Scenario, __: Answer, words: Said) -> str | None:
    """Both functions are called."""
    names = [call.name for call in words.calls]
    return None if names == list(TOOLS) else f"the calls are {', '.join(names) or 'none'}"


def finished_by_call(_: Scenario, __: Answer, words: Said) -> str | None:
    """The finish says that the client has to act."""
    return None if words.finish == "call" else f"the finish is {words.finish or 'missing'}"


def quotes_result(scenario: Scenario, _: Answer, words: Said) -> str | None:
    """What the tool said reached the model."""
    return None if scenario.result in words.text else f"the result is not in {words.text[:80]!r}"


def sees(_: Scenario, __: Answer, words: Said) -> str | None:
    """The picture reached the model, whole: the scripted one says what it was given."""
    shown = f"image/png, {len(b64decode(IMAGE))} bytes"
    return None if shown in words.text else f"the model was not shown {shown}: {words.text[-80:]!r}"


def cut(_: Scenario, __: Answer, words: Said) -> str | None:
    """The finish says that the answer was cut."""
    return None if words.finish == "length" else f"the finish is {words.finish or 'missing'}"


def counted(_: Scenario, __: Answer, words: Said) -> str | None:
    """Usage has both counts."""
    return None if min(words.used) > 0 else f"usage says {words.used[0]} in and {words.used[1]} out"


def lives(_: Scenario, answer: Answer, __: Said) -> str | None:
    """No silence is longer than what proxies and clients bear."""
    moments = [0.0, *(at for at, _ in answer.arrivals), answer.seconds]
    longest = max(after - before for before, after in pairwise(moments))
    return None if longest <= LONGEST_SILENCE else f"{longest:.1f} s without a byte"


def comes_early(_: Scenario, answer: Answer, words: Said) -> str | None:
    """The first words come well before the answer's end: nobody holds the stream back."""
    if words.first < 0:
        return "no text came"
    early = words.first < answer.seconds - 1.0
    return None if early else f"the first word came after {words.first:.1f} of {answer.seconds:.1f} s"


def prompt_after_leavers(_: Scenario, answer: Answer, __: Said) -> str | None:
    """The next small request is answered at once."""
    return None if 0 < answer.next_seconds < 3 else f"the next request took {answer.next_seconds:.1f} s"


def fails_in_stream(_: Scenario, answer: Answer, words: Said) -> str | None:
    """A failure in mid-stream is told in the format's own way: never a clean end, never a finish."""
    if words.finish in ("stop", "call", "length"):
        return f"the cut answer ends with the finish {words.finish}"
    events = answer.events()
    match answer.form:
        case "chat":
            told = any(event.get("error") for _, event in events)
        case "messages":
            told = any(event.get("type") == "error" for _, event in events)
        case "responses":
            told = bool(events) and events[-1][1].get("type") == "response.failed"
    return None if told or answer.cut else "the stream ends cleanly and says nothing of the failure"


def in_own_envelope(_: Scenario, answer: Answer, __: Said) -> str | None:
    """An error is JSON in the format's own envelope, with words in it."""
    if answer.headers.get("content-type", "").partition(";")[0] != "application/json":
        return f"content-type is {answer.headers.get('content-type')!r}"
    whole = answer.json()
    error: Json = whole["error"] if isinstance(whole.get("error"), dict) else {}
    if not error.get("message"):
        return f"no error.message in {answer.body[:80].decode('utf-8', 'replace')!r}"
    if answer.form == "messages" and (whole.get("type") != "error" or error.get("type") not in _OWN_TYPES):
        return f"the envelope is {whole.get('type')!r} with the type {error.get('type')!r}"
    if answer.form != "messages" and not {"type", "code", "param"} <= error.keys():
        return f"the error has only {', '.join(error)}"
    return None


def says_when(_: Scenario, answer: Answer, __: Said) -> str | None:
    """A 429 says how long to wait."""
    return None if answer.headers.get("retry-after", "").isdigit() else "there is no retry-after in seconds"


def _refused(*statuses: int) -> Check:
    def refused(_: Scenario, answer: Answer, __: Said) -> str | None:
        wanted = " or ".join(map(str, statuses)) if len(statuses) < 4 else "5xx"
        return None if answer.status in statuses else f"status {answer.status}, not {wanted}"

    return refused


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        answered,
        framed,
        ended,
        one_id,
        own_model,
        says,
        in_pieces,
        echoes,
        thinks,
        finished,
        calls,
        calls_two,
        finished_by_call,
        quotes_result,
        sees,
        cut,
        counted,
        lives,
        comes_early,
        prompt_after_leavers,
        fails_in_stream,
        in_own_envelope,
        says_when,
    )
} | {
    "refused_400": _refused(400),
    "refused_400_404": _refused(400, 404),
    "refused_401_403": _refused(401, 403),
    "refused_429": _refused(429),
    "refused_5xx": _refused(*range(500, 600)),
}
"""Every check by the name that scenarios use."""
