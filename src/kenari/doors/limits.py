"""What a client of the inbound end may use, what it is told beyond that, and whose address it has."""

import asyncio
import ipaddress
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from kenari.core.errors import KenariError
from kenari.wire.http1 import content_coding, is_plainly_framed, split_target
from kenari.wire.inflate import CODINGS, CodingError, TooLargeError, inflate

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

Screen: TypeAlias = Callable[[str, dict[bytes, bytes]], KenariError | None]
"""What is wrong with a request for a path, by its headers; None when its body is wanted."""

SMALL_BODY = 64 * 1024
"""Bytes of a body that is taken from whoever sends it. What is larger, or may be, is taken from those who may send it only."""
THREAD_BYTES = 1024 * 1024
"""Compressed bodies that are larger than this, coded or plain, are inflated in a thread, so that no stream waits."""


class EdgeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may use. Bytes and seconds.

    `max_body` holds after decompression. A request head must be whole within `head_seconds`; a body must bring
    something at least every `body_idle_seconds` and `body_rate` bytes a second on average after that time; a kept-alive
    connection may be idle for `idle_seconds`. Who reads nothing of an answer under way for `unread_seconds` has gone.
    """

    max_body: int = 32 * 1024 * 1024
    max_head: int = 64 * 1024
    max_headers: int = 256
    head_seconds: float = 15.0
    body_idle_seconds: float = 20.0
    body_rate: int = 1024
    idle_seconds: float = 75.0
    unread_seconds: float = 600.0
    trusted_proxies: tuple[Network, ...] = ()


def client_address(peer: str, forwarded: bytes, trusted: tuple[Network, ...]) -> str:
    """The client's address: the rightmost forwarded one that no trusted proxy has, if the peer is one (F13)."""
    address = peer
    if not trusted or not _is_in(address, trusted):
        return address
    for hop in reversed(forwarded.decode("latin-1").split(",")):
        candidate = hop.strip().strip("[]")
        try:
            ipaddress.ip_address(candidate)
        except ValueError:
            break
        address = candidate
        if not _is_in(address, trusted):
            break
    return address


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)


async def plain_body(coding: bytes, coded: bytes, limit: int) -> bytes:
    """A body with its coding undone; what turns out to be large is begun anew in a thread.

    Raises KenariError for a body that is larger than `limit` when plain, or is not what its coding says.
    """
    try:
        if len(coded) <= THREAD_BYTES:
            try:
                return inflate(coding, coded, min(limit, THREAD_BYTES))
            except TooLargeError:
                if limit <= THREAD_BYTES:
                    raise
        return await asyncio.to_thread(inflate, coding, coded, limit)
    except TooLargeError:
        raise body_too_large(limit) from None
    except CodingError:
        message = f"the body is not valid {coding.decode()}. send it again, or without content-encoding"
        raise KenariError("bad_request", message) from None


def announced_fault(url: bytes, headers: dict[bytes, bytes], max_body: int, screen: Screen) -> KenariError | None:
    """What is wrong with a body by its head, before it comes. `screen` is asked about one that takes memory."""
    size = int(headers[b"content-length"][:18]) if b"content-length" in headers else 0
    if size > max_body:
        return body_too_large(max_body)
    if b"content-encoding" in headers and content_coding(headers) not in (b"", *CODINGS):
        return KenariError("unsupported_media_type", "content-encoding must be gzip, deflate or zstd")
    if not is_plainly_framed(headers):
        return KenariError("bad_request", "transfer-encoding must be chunked and nothing else")
    if size > SMALL_BODY or b"transfer-encoding" in headers or b"content-encoding" in headers:
        return screen(split_target(url)[0], headers)
    return None


def headers_too_large() -> KenariError:
    """431."""
    return KenariError("headers_too_large", "the request's headers are too large or too many. send fewer")


def body_too_large(limit: int) -> KenariError:
    """413."""
    return KenariError("request_too_large", f"the request body is larger than {limit} bytes. send less")


def malformed() -> KenariError:
    """400."""
    return KenariError("bad_request", "the HTTP request is malformed. send plain HTTP/1.1")


def our_fault() -> KenariError:
    """500."""
    return KenariError("internal_error", "something went wrong. send it again")


def too_slow() -> KenariError:
    """408."""
    return KenariError("request_timeout", "the request came too slowly. send it again on a new connection")
