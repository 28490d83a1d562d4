"""What one WebSocket remembers between its turns: the last response's conversation, and nothing once it closes (S104).

A turn that names it in `previous_response_id` brings only what is new; here the whole conversation is put together
again, so that behind this file every request is as stateless as a POST.
"""

from msgspec import Raw

from kenari.core.errors import KenariError, bad_request
from kenari.wire import jsonx

NOT_FOR_SOCKETS = frozenset({"type", "stream", "stream_options", "background", "generate", "previous_response_id"})
"""Members of a message that mean nothing to the endpoint, or that the specification keeps out of messages."""
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


class Chain:
    """The memory of one connection. `warm` is true while the turn under way only announces its conversation."""

    def __init__(self, max_bytes: int) -> None:
        self.warm = False
        self._max_bytes = max_bytes
        self._id = ""
        self._items: list[Raw] = []
        self._sent: list[Raw] = []

    def compose(self, message: bytes) -> bytes:
        """The body of the request that a `response.create` message stands for.

        Raises KenariError: 400 for what is no such message, `previous_response_not_found` for a response that this
        connection does not hold, 413 when the conversation has grown too large. A continuation that fails is forgotten.
        """
        members = jsonx.request_fields(message)
        if _text(members.get("type")) != "response.create":
            raise bad_request('type must be "response.create"', "type")
        previous = members.get("previous_response_id")
        try:
            items = _new_items(members.get("input"))
            if not jsonx.is_null(previous):
                items = self._continued(_text(previous), items)
            kept = {name: raw for name, raw in members.items() if name not in NOT_FOR_SOCKETS}
            body = jsonx.encode({**kept, "input": items, "stream": True})
            if len(body) > self._max_bytes:
                raise KenariError(
                    "request_too_large",
                    f"the conversation is larger than {self._max_bytes} bytes. compact it or start a new one",
                )
        except KenariError:
            self.forget()
            raise
        self._sent = items
        self.warm = bytes(members.get("generate", Raw(b"true"))) == b"false"
        return body

    def keep(self, completed: bytes) -> None:
        """Remember the turn by the data of its `response.completed` event."""
        response = jsonx.members(jsonx.members(completed)["response"])
        self._id = _text(response["id"])
        self._items = [*self._sent, *jsonx.elements(response["output"])]

    def forget(self) -> None:
        """A turn that failed cannot be continued, nor what it continued."""
        self._id, self._items = "", []

    def _continued(self, previous: str, items: list[Raw]) -> list[Raw]:
        if not self._id or previous != self._id:
            raise KenariError(
                "previous_response_not_found",
                "previous_response_id names no response that this connection holds. only the last one can be continued, "
                "and only on its own connection: send the whole conversation in input",
                "previous_response_id",
            )
        known = {call_id for kind, call_id in map(_head, self._items) if kind in _CALLS}
        known |= {call_id for kind, call_id in map(_head, items) if kind in _CALLS}
        for position, (kind, call_id) in enumerate(map(_head, items)):
            if kind in _RESULTS and call_id not in known:
                where = f"input[{position}].call_id"
                raise bad_request(f"{where} answers no call of the conversation that is continued", where)
        return [*self._items, *items]


def _new_items(raw: Raw | None) -> list[Raw]:
    """The items of `input`; a text is a user's message, an empty one none. What is wrong with items the endpoint says."""
    if raw is None or bytes(raw) in (b"null", b'""'):
        return []
    if jsonx.kind(raw) not in ("array", "string"):
        raise bad_request("input must be a string or an array of items", "input")
    try:
        if jsonx.kind(raw) == "array":
            return jsonx.elements(raw)
    except jsonx.Malformed as error:
        raise jsonx.as_bad_request(error, "input") from None
    return [Raw(b'{"type":"message","role":"user","content":' + bytes(raw) + b"}")]


def _head(item: Raw) -> tuple[str, str]:
    """An item's type and call_id."""
    try:
        members = jsonx.members(item)
    except jsonx.Malformed:
        return "", ""
    return _text(members.get("type")), _text(members.get("call_id"))


def _text(raw: Raw | None) -> str:
    return jsonx.unescape(jsonx.unquoted(raw)) if raw is not None and jsonx.kind(raw) == "string" else ""
