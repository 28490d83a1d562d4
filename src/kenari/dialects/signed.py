"""What a chat provider signs besides its reasoning and wants back (D5), as the value of a proof.

A client carries it in an envelope like any other proof, and knows nothing of it.
"""

import msgspec
from msgspec import Raw

from kenari.wire import jsonx


class Signed(msgspec.Struct, frozen=True, omit_defaults=True):
    """`extra_content` belongs to the call of this id: Gemini refuses a conversation of calls without it. `details` are the
    `reasoning_details` of an answer (OpenRouter)."""

    call_id: str = ""
    extra_content: Raw = Raw(b"null")
    details: Raw = Raw(b"null")


_SIGNED = jsonx.decoder(Signed)


def write(signed: Signed) -> str:
    """The value of the proof."""
    return jsonx.encode(signed).decode()


def read(value: str) -> Signed | None:
    """What the value of a proof says; None for a proof of another kind."""
    try:
        return _SIGNED.decode(value.encode()) if value.startswith("{") else None
    except (msgspec.DecodeError, ValueError):
        return None
