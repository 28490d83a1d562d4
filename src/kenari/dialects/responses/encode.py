"""Events -> a Responses client's stream, and a reply -> its JSON object."""

from collections.abc import Callable
from typing import Any

import msgspec

from kenari.core.errors import KenariError
from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.fold import Block, Reply
from kenari.core.grammar import Serial
from kenari.core.request import CallPart
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Proof
from kenari.dialects.responses.items import call_item, freeform_input, message_item, new_id, reasoning_item
from kenari.dialects.responses.resource import Resource, error_object, status_of
from kenari.wire import jsonx

_SUMMARY = b'{"type":"summary_text","text":"'


class _Item:
    """The output item under way. `close` writes its closing events."""

    def __init__(self, index: int, item: str, close: Callable[["_Item"], bytes]) -> None:
        self.index = index
        self.id = item
        self.close = close
        self.pieces: list[bytes] = []
        self.proofs: list[Proof] = []
        self.length = 0
        self.call: CallPart | None = None

    @property
    def text(self) -> bytes:
        """All that it said so far."""
        return b"".join(self.pieces)


class ResponsesEncoder:
    """One client stream: exactly the events of the page (S80-S92), sequence numbers from 0.

    Reasoning blocks that follow each other are one item (S94, D4), so such an item stays open until something else
    begins.
    """

    def __init__(self, answer: Answer) -> None:
        self.started = False
        self._answer = answer
        self._resource = Resource(answer)
        self._serial = Serial()
        self._number = 0
        self._items: list[bytes] = []  # the finished ones, as they stand in `output`
        self._item: _Item | None = None
        self._reasoning = False  # the item under way is reasoning
        self._usage = Usage()
        self._stop: Stop | None = None
        self._delta = b""  # the head of a delta event of the item under way

    def encode(self, events: list[Event]) -> bytes:
        """The frames of these events."""
        out: list[bytes] = []
        for event in self._serial.order(events):
            kind = type(event)
            if (kind is Text or kind is Args) and self._item is not None:
                self._item.pieces.append(event.delta)  # type: ignore[union-attr]
                if self._delta and event.delta:  # type: ignore[union-attr]
                    out.append(self._delta + event.delta + b'","sequence_number":%d}\n\n' % self._next())  # type: ignore[union-attr]
            else:
                piece = self._encode(event)
                if piece:
                    out.append(piece)
        return b"".join(out)

    def noop(self) -> bytes:
        """A `keepalive` event, which Codex counts as life (D15), after response.created."""
        opening = b"" if self.started else self._created()
        return opening + self._frame("keepalive", b"")

    def finish(self) -> bytes:
        """response.completed with the whole output and the usage; a cut answer is incomplete there (S93)."""
        opening = (b"" if self.started else self._created()) + self._end_item()
        stop = self._stop or Stop("stop")
        response = self._resource.write(status_of(stop), self._output(), self._usage, stop)
        return opening + self._frame("response.completed", b',"response":' + response)

    def fail(self, error: KenariError) -> bytes:
        """response.failed; nothing comes after it (S98)."""
        opening = b"" if self.started else self._created()
        response = self._resource.write("failed", self._output(), error=error_object(error))
        return opening + self._frame("response.failed", b',"response":' + response)

    def _output(self) -> bytes:
        return b"[" + b",".join(self._items) + b"]"

    def _created(self) -> bytes:
        self.started = True
        response = self._resource.write("in_progress", b"[]")
        return self._frame("response.created", b',"response":' + response)

    def _next(self) -> int:
        number = self._number
        self._number += 1
        return number

    def _frame(self, name: str, members: bytes) -> bytes:
        kind = name.encode()
        return b'event: %b\ndata: {"type":"%b"%b,"sequence_number":%d}\n\n' % (kind, kind, members, self._next())

    def _encode(self, event: Event) -> bytes:
        match event:
            case Open():
                return self._open(event)
            case Reason():
                return self._reason(event)
            case Seal():
                if self._item is not None:
                    self._item.proofs.append(Proof(event.kind, event.value, self._item.length))
                    self._item.length = 0
            case Close():
                return b"" if self._reasoning else self._end_item()
            case Start() | Meter():
                self._usage = event.usage or self._usage
            case Stop():
                self._stop = event
            case Failure():
                return self.fail(event.error)
            case _:
                pass
        return b""

    def _open(self, event: Open) -> bytes:
        if event.kind == "reasoning" and self._reasoning:
            return b""
        if event.kind == "opaque":
            return self._end_item()
        out = (b"" if self.started else self._created()) + self._end_item()
        kind = {"reasoning": "reasoning", "call": "custom_tool_call" if event.custom else "function_call"}.get(
            event.kind, "message"
        )
        index = len(self._items)
        item = new_id(kind, self._answer.id, index)
        self._reasoning = kind == "reasoning"
        close = {
            "reasoning": self._close_reasoning,
            "message": self._close_message,
            "function_call": self._close_call,
            "custom_tool_call": self._close_call,
        }[kind]
        self._item = _Item(index, item, close)
        if kind == "reasoning":
            added = reasoning_item(item, b"", None, "in_progress")
            self._delta = b""
        elif kind == "message":
            added = message_item(item, b"", "in_progress")
            self._delta = self._delta_head("response.output_text.delta", b',"content_index":0')
        else:
            call = CallPart(event.call_id, event.name, b"", namespace=event.namespace, custom=event.custom)
            self._item.call = call
            added = call_item(item, call, "in_progress")
            self._delta = b"" if event.custom else self._delta_head("response.function_call_arguments.delta", b"")
        return out + self._item_event("response.output_item.added", b',"item":' + jsonx.encode(added))

    def _delta_head(self, name: str, members: bytes) -> bytes:
        assert self._item is not None
        kind = name.encode()
        return b'event: %b\ndata: {"type":"%b","item_id":"%b","output_index":%d%b,"delta":"' % (
            kind,
            kind,
            self._item.id.encode(),
            self._item.index,
            members,
        )

    def _item_event(self, name: str, members: bytes) -> bytes:
        item = self._item
        assert item is not None
        return self._frame(name, b',"item_id":"%b","output_index":%d%b' % (item.id.encode(), item.index, members))

    def _reason(self, event: Reason) -> bytes:
        item = self._item
        if item is None or not event.delta:
            return b""
        out = b""
        if not item.pieces:
            part = b',"summary_index":0,"part":' + _SUMMARY + b'"}'
            out = self._item_event("response.reasoning_summary_part.added", part)
            self._delta = self._delta_head("response.reasoning_summary_text.delta", b',"summary_index":0')
        item.pieces.append(event.delta)
        item.length += len(jsonx.unescape(event.delta))
        return out + self._delta + event.delta + b'","sequence_number":%d}\n\n' % self._next()

    def _end_item(self) -> bytes:
        """The closing events of the item under way, which then stands in the output."""
        item = self._item
        if item is None:
            return b""
        out = item.close(item)
        self._item, self._reasoning, self._delta = None, False, b""
        return out

    def _done(self, whole: dict[str, Any]) -> bytes:
        data = jsonx.encode(whole)
        self._items.append(data)
        return self._item_event("response.output_item.done", b',"item":' + data)

    def _close_message(self, item: _Item) -> bytes:
        return self._done(message_item(item.id, item.text, "completed"))

    def _close_reasoning(self, item: _Item) -> bytes:
        text = item.text
        out = b""
        if item.pieces:
            done = b',"summary_index":0,"text":"' + text + b'"'
            out = self._item_event("response.reasoning_summary_text.done", done)
            part = b',"summary_index":0,"part":' + _SUMMARY + text + b'"}'
            out += self._item_event("response.reasoning_summary_part.done", part)
        envelope = envelope_of(self._answer, item.proofs, item.length)
        return out + self._done(reasoning_item(item.id, text, envelope, "completed"))

    def _close_call(self, item: _Item) -> bytes:
        call = item.call
        assert call is not None
        arguments = item.text or b"{}"
        if call.custom:
            text = freeform_input(arguments)
            delta = self._item_event("response.custom_tool_call_input.delta", b',"delta":"' + text + b'"')
            done = self._item_event("response.custom_tool_call_input.done", b',"input":"' + text + b'"')
            call = msgspec.structs.replace(call, arguments=text)
            return delta + done + self._done(call_item(item.id, call, "completed"))
        out = self._item_event("response.function_call_arguments.done", b',"arguments":"' + arguments + b'"')
        call = msgspec.structs.replace(call, arguments=arguments)
        return out + self._done(call_item(item.id, call, "completed"))


def envelope_of(answer: Answer, proofs: list[Proof], rest: int) -> str:
    """The envelope of a reasoning item: its maker's proofs, or our mark where there is none."""
    real = [proof for proof in proofs if proof.kind != "mark"]
    return answer.seal(real or [Proof("mark", "", rest)])


def encode_reply(reply: Reply, answer: Answer) -> bytes:
    """The response object of a plain answer."""
    output: list[bytes] = []
    thoughts: list[Block] = []
    for block in [*reply.blocks, None]:
        if block is not None and block.kind == "reasoning":
            thoughts.append(block)
            continue
        if thoughts:
            output.append(jsonx.encode(_reasoning(thoughts, answer, len(output))))
            thoughts = []
        if block is None or block.kind == "opaque":
            continue
        output.append(jsonx.encode(_whole(block, answer, len(output))))
    status = status_of(reply.stop)
    return Resource(answer).write(status, b"[" + b",".join(output) + b"]", reply.usage, reply.stop)


def _reasoning(blocks: list[Block], answer: Answer, index: int) -> dict[str, Any]:
    proofs: list[Proof] = []
    rest = 0
    for block in blocks:
        rest += len(jsonx.unescape(block.text))
        for seal in block.seals:
            proofs.append(Proof(seal.kind, seal.value, rest))
            rest = 0
    text = b"".join(block.text for block in blocks)
    return reasoning_item(new_id("reasoning", answer.id, index), text, envelope_of(answer, proofs, rest), "completed")


def _whole(block: Block, answer: Answer, index: int) -> dict[str, Any]:
    if block.kind != "call":
        return message_item(new_id("message", answer.id, index), block.text, "completed")
    text = freeform_input(block.text) if block.custom else block.text or b"{}"
    call = CallPart(block.call_id, block.name, text, namespace=block.namespace, custom=block.custom)
    kind = "custom_tool_call" if block.custom else "function_call"
    return call_item(new_id(kind, answer.id, index), call, "completed")
