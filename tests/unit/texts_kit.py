"""Insides of JSON strings as providers may write them, well formed and not, and the frames they stand in."""

import json

import gateway_kit as kit
from hypothesis import strategies as st

WHOLE = [
    *(b"word ", b"a", b"%b%d", b" ", b"\\n", b"\\t", b'\\"', b"\\\\", b"\\/", b"\\r", b"\\b", b"\\f", b"\\u00e9"),
    *(b"\\u0000", b"\\ud83d\\ude00", b"\x7f", "é".encode(), "\u2028".encode(), "😀".encode()),
]
"""What may stand in a string."""
BROKEN = [
    *(b"\\", b"\\q", b"\\x41", b"\\u12", b"\\ud83d", b"\\ude00", b"\\ud800x", b'"', b"\t", b"\r", b"\n", b"\x00"),
    *(b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b'","', b'"},{"'),
]
"""What may not, at least not alone."""
SPELLED: st.SearchStrategy[bytes] = st.lists(
    st.sampled_from(WHOLE) | st.sampled_from(WHOLE) | st.sampled_from(WHOLE + BROKEN), max_size=3
).map(b"".join)
"""The inside of a string, mostly a legal one."""


def may_stand(text: bytes) -> bool:
    """Whether a text may stand between quotes as it is, by another reader."""
    try:
        json.loads(f'"{text.decode()}"').encode()
    except ValueError:
        return False
    return True


def spelled(name: str, text: bytes) -> bytes:
    """A chunk with this member as it is spelled."""
    return kit.chunk({name: "\u00a7"}).replace(b"\\u00a7", text)
