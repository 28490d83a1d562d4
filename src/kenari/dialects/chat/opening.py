"""The chunks that a stream begins with, read in C: the role, and a first piece of text.

What is read here is what the general reader makes of the same bytes; anything else is left to that one (tests hold both to
the same events). A client waits for these chunks, and the general reader is a dozen functions long, none of which is in the
processor's caches when a provider has taken its time.
"""

from typing import Literal

import msgspec

from kenari.core.events import Escaped
from kenari.dialects.chat.plain import Words
from kenari.wire import jsonx


class _Choice(msgspec.Struct, gc=False):
    delta: Words
    message: None = None
    index: Literal[0] = 0
    finish_reason: None = None
    logprobs: None = None
    usage: None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: tuple[_Choice]
    usage: None = None
    error: None = None
    x_groq: None = None


_QUOTE = 0x22
_CHUNK = jsonx.decoder(_Chunk)
_NOTHING = (b"", b"null", b'""')


def plain_chunk(data: bytes) -> Escaped | None:
    """The text of a chunk that holds one piece of text, or b"" where it holds none, and nothing else that is read. None: it
    has to be parsed."""
    try:
        chunk = _CHUNK.decode(data)
        if not data.isascii():
            data.decode()
    except (ValueError, RecursionError):  # another shape, no JSON, no UTF-8
        return None
    content = bytes(chunk.choices[0].delta.content)
    if content in _NOTHING:
        return b""
    return content[1:-1] if content[0] == _QUOTE else None
