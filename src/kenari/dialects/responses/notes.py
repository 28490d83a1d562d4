"""An answer that is notes on the conversation: what a client gets that ended its `input` with a `compaction_trigger`.

Codex's own provider asks this way, in the middle of a task, and wants exactly one `compaction` item in the stream.
"""

from kenari.core.errors import KenariError
from kenari.core.events import Args, Close, Event, Open, Reason, Seal, Text
from kenari.core.fold import Reply, unfold
from kenari.dialects.base import Answer
from kenari.dialects.responses.encode import ResponsesEncoder
from kenari.dialects.responses.items import new_id
from kenari.dialects.responses.packed import pack
from kenari.wire import jsonx


class NotesEncoder(ResponsesEncoder):
    """The stream: nothing is said before the notes are whole, then they come as the one item. Thoughts and calls are left out."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._notes: list[bytes] = []

    def finish(self) -> bytes:
        """The item and response.completed; without any notes the client has nothing to go on from, so it is told."""
        if not b"".join(self._notes).strip():
            return self.fail(KenariError("upstream_error", "the model wrote no notes on the conversation"))
        return self._created() + self._compaction() + super().finish()

    def whole(self, reply: Reply) -> bytes:
        """The response object of a plain answer."""
        self.started = True
        self.encode(unfold(reply))
        self._compaction()
        return self._finished()

    def _encode(self, event: Event) -> bytes:
        match event:
            case Text():
                self._notes.append(event.delta)
                return self._created()
            case Reason() | Seal() | Open() | Args() | Close():
                return b""
            case _:
                return super()._encode(event)

    def _compaction(self) -> bytes:
        """The item's events."""
        identity = new_id("compaction", self._answer.id, 0)
        item = {"type": "compaction", "id": identity, "encrypted_content": pack(b"".join(self._notes))}
        data = jsonx.encode(item)
        self._items.append(data)
        members = b',"item_id":"%b","output_index":0,"item":%b' % (identity.encode(), data)
        return self._frame("response.output_item.added", members) + self._frame("response.output_item.done", members)
