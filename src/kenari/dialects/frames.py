"""Reading a provider's frame into a wire struct, whatever is wrong with its text."""

from typing import TypeVar

import msgspec

from kenari.wire import jsonx
from kenari.wire.surrogates import hide

T = TypeVar("T")


def read_frame(use: jsonx.Decoder[T], data: bytes) -> tuple[T | None, bool]:
    """The struct of a frame's data, None when it is not JSON of that form, and whether it holds hidden surrogate
    halves. Invalid UTF-8 is replaced, so that what a client gets is always valid."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            data = data.decode("utf-8", "replace").encode()
    try:
        return use.decode(data), False
    except (msgspec.DecodeError, RecursionError):
        pass
    hidden = hide(data)
    try:
        return use.decode(hidden), hidden != data
    except (msgspec.DecodeError, RecursionError):
        return None, False


def lenient(kind: type[T]) -> jsonx.Decoder[T]:
    """A decoder that takes numbers written as strings and the like, as some servers send them."""
    return jsonx.decoder(kind, strict=False)
