"""Notes on a conversation, packed into the content of a `compaction` item and read from it again."""

import base64
import binascii

from kenari.core.events import Escaped
from kenari.wire import jsonx

ASKED = "input.compaction_trigger"
"""Among the `fields` of a request: its input ended with the item that asks for notes in place of an answer."""
PACKED = "kncompact1."
"""What the content of an item of ours begins with."""
LEAD = "Notes on the conversation so far, written before its older part was removed:\n\n"

QUESTION = (
    "Stop here and write down this conversation for whoever continues it without having seen it. Say what the user "
    "wants, what was decided and why, what was done and found (names of files, commands, values, errors, word for word "
    "where they matter), and what is left to do next. Write only these notes."
)
"""What a model is asked for notes with."""


def pack(text: Escaped) -> str:
    """The content of a compaction item. It is packed, not secret: the conversation is the client's own."""
    return PACKED + base64.urlsafe_b64encode(text).decode()


def unpack(content: str) -> Escaped | None:
    """The notes as a model reads them; None when the item is not one of ours."""
    if not content.startswith(PACKED):
        return None
    try:
        text = base64.b64decode(content[len(PACKED) :], altchars=b"-_", validate=True)
        jsonx.value(jsonx.quote(text))
    except (binascii.Error, ValueError):
        return None
    return jsonx.escape(LEAD) + text
