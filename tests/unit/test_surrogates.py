"""Halves of surrogate pairs that are split over texts."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kenari.wire.surrogates import Halves, drop_hidden, hide


def test_f2_only_lone_halves_are_hidden() -> None:
    whole = b'{"a":"\\ud83d\\ude00 \\\\ud83d \\u0041"}'
    assert hide(whole) == whole
    hidden = hide(b'{"a":"\\ud83d x \\ude00"}')
    assert json.loads(drop_hidden(hidden)) == {"a": "\ufffd x \ufffd"}


def test_characters_of_icon_fonts_stay() -> None:
    """Nerd fonts use the beginning of plane 15."""
    icon = "\U000f0001".encode()
    assert Halves().mend(icon) == icon


@given(st.text(max_size=12), st.data())
def test_f2_texts_cut_between_utf16_units_are_put_together(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    escapes = [b"\\u" + units[at : at + 2].hex().encode() for at in range(0, len(units), 2)]
    cut = data.draw(st.integers(0, len(escapes)))
    halves = Halves()
    out = b""
    for piece in (escapes[:cut], escapes[cut:]):
        out += halves.mend(hide(b"".join(piece)))
    out += halves.flush()
    assert json.loads(b'"' + out + b'"') == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
