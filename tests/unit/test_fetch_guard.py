"""The guarded fetcher against attempts to lead it inside, and against servers that misbehave."""

import asyncio
import contextlib
import gzip
import ipaddress
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from kenari.core.fetched import Fetched, FetchError, Wanted
from kenari.fetch.addresses import may_reach
from kenari.fetch.guard import GuardedFetch
from kenari.fetch.policy import FetchPolicy, next_place, read_url

Serve: TypeAlias = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
OPEN = FetchPolicy(networks=LOOPBACK)

INSIDE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.168.1.1",
    "192.88.99.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "240.0.0.1",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:169.254.169.254",
    "64:ff9b::127.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::10.0.0.1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2606:4700::5efe:7f00:1",
    "2606:4700::200:5efe:a00:1",
]


@pytest.mark.parametrize("text", INSIDE)
def test_addresses_inside_are_refused(text: str) -> None:
    assert not may_reach(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "192.0.1.1", "2606:4700:4700::1111", "2a00:1450:4001::8a"])
def test_addresses_of_the_internet_are_not(text: str) -> None:
    assert may_reach(ipaddress.ip_address(text))


@given(st.ip_addresses())
def test_no_address_is_public_for_us_that_the_standard_library_calls_closed(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """The library's own idea of what is global is never wider than ours where it closes an address."""
    if address.is_private or address.is_loopback or address.is_multicast or address.is_reserved:
        assert not may_reach(address)


def test_the_operator_opens_networks_but_no_scopes() -> None:
    opened = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fe80::/10"))
    assert may_reach(ipaddress.ip_address("10.1.2.3"), opened)
    assert not may_reach(ipaddress.ip_address("192.168.0.1"), opened)
    assert not may_reach(ipaddress.ip_address("fe80::1%eth0"), opened)


# -- addresses as people write them


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/x",
        "gopher://example.com/x",
        "data:text/plain,x",
        "unix:/run/x",
        "//example.com/x",
        "http://",
        "http:///x",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://example.com:99999/",
        "http://example.com:0/",
        "http://exa mple.com/",
        "http://example.com\\@127.0.0.1/",
        "http://[::1/",
        "http://a" + "b" * 5000 + ".example/",
        "http://-\ud800-.example/",
    ],
)
def test_what_is_no_plain_address_is_refused(url: str) -> None:
    with pytest.raises(FetchError):
        read_url(url)


def test_an_address_cannot_end_its_request_line() -> None:
    """Control characters, blanks and other letters travel escaped: no second header, no second request."""
    place = read_url("http://example.com/a b?x=1\u00e9&y=\x0bz")
    assert place.target == "/a%20b?x=1%C3%A9&y=%0Bz"
    assert read_url("http://B\u00dcCHER.example/").host == "xn--bcher-kva.example"
    assert read_url("HTTP://Example.COM.:8080/").authority == "example.com:8080"
    assert "\r" not in read_url("http://example.com/a\r\nX: y").target


def test_redirects_are_read_strictly() -> None:
    https = read_url("https://example.com/a/b")
    assert next_place(https, "../c").url == "https://example.com/c"
    for location in ("http://example.com/", "file:///etc/passwd", "https://u:p@example.com/", "javascript:1"):
        with pytest.raises(FetchError):
            next_place(https, location)


# -- a server to talk to


@contextlib.asynccontextmanager
async def serving(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """A server on loopback that reads one request's head and then does as it is told; its port."""

    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                head = await reader.readuntil(b"\r\n\r\n")
                await serve(head, writer)
                await writer.drain()
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.sleep(0.02)


def says(head: str, body: bytes = b"", seen: list[bytes] | None = None) -> Serve:
    """A server that answers with these header lines (after the status) and this body."""

    async def serve(request: bytes, writer: asyncio.StreamWriter) -> None:
        if seen is not None:
            seen.append(request)
        writer.write(b"HTTP/1.1 " + head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)

    return serve


def html(body: bytes, seen: list[bytes] | None = None) -> Serve:
    return says(f"200 OK\ncontent-type: text/html; charset=ISO-8859-1\ncontent-length: {len(body)}", body, seen)


def reading(
    serve: Serve,
    url: str = "http://127.0.0.1:{port}/x",
    fetch: GuardedFetch | None = None,
    **wanted: object,
) -> Fetched:
    """What the fetcher reads from such a server."""

    async def run() -> Fetched:
        async with serving(serve) as port:
            guard = fetch or GuardedFetch(OPEN)
            request = Wanted(url=url.format(port=port), **{"seconds": 5.0, **wanted})  # pyright: ignore[reportArgumentType]
            return await guard.fetch(request)

    return asyncio.run(run())


def test_a_page_is_read() -> None:
    seen: list[bytes] = []
    page = reading(html(b"<p>hi", seen), "http://127.0.0.1:{port}/a?b=c")
    assert (page.status, page.media_type, page.charset, page.body) == (200, "text/html", "iso-8859-1", b"<p>hi")
    assert seen[0].startswith(b"GET /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"authorization" not in seen[0].lower()
    assert b"cookie" not in seen[0].lower()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://127.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://0:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::1]:{port}/",
        "http://127.0.0.1.:{port}/",
        "http://\uff11\uff12\uff17.0.0.1:{port}/",
    ],
)
def test_a_server_inside_is_never_spoken_to(url: str) -> None:
    """Every spelling of loopback, with the system's own resolver."""
    seen: list[bytes] = []
    with pytest.raises(FetchError):
        reading(html(b"secret", seen), url, GuardedFetch(FetchPolicy()))
    assert seen == []


def resolver(*answers: list[str]) -> tuple[Callable[[str, int], Awaitable[list[str]]], list[str]]:
    """A resolver that gives the next answer each time it is asked, and the names it was asked for."""
    asked: list[str] = []
    left = list(answers)

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve, asked


def test_a_name_is_resolved_once_and_that_address_is_connected_to() -> None:
    """DNS rebinding: the first answer is fine, every later one leads inside. There is no later one."""
    resolve, asked = resolver(["127.0.0.1"], ["10.0.0.1"])
    seen: list[bytes] = []
    page = reading(html(b"ok", seen), "http://rebind.example:{port}/", GuardedFetch(OPEN, resolve))
    assert page.body == b"ok"
    assert asked == ["rebind.example"]
    assert b"\r\nhost: rebind.example:" in seen[0]


def test_rebinding_between_a_redirect_and_its_target_is_noticed() -> None:
    """The second request resolves again, and what it gets is checked again."""
    resolve, asked = resolver(["127.0.0.1"], ["10.0.0.1"])
    serve = says("302 Found\nlocation: /again\ncontent-length: 0")
    with pytest.raises(FetchError, match="not on the public internet"):
        reading(serve, "http://rebind.example:{port}/", GuardedFetch(OPEN, resolve))
    assert asked == ["rebind.example", "rebind.example"]


def test_one_address_inside_closes_a_name() -> None:
    """A name with a good and a bad address may not choose the bad one on a second try."""
    resolve, _ = resolver(["93.184.216.34", "127.0.0.1"])
    with pytest.raises(FetchError, match="not on the public internet"):
        reading(html(b"x"), "http://both.example:{port}/", GuardedFetch(FetchPolicy(), resolve))


@pytest.mark.parametrize("answer", [[], ["no address"], ["::ffff:127.0.0.1"], ["fe80::1%lo"]])
def test_odd_answers_of_a_resolver(answer: list[str]) -> None:
    resolve, _ = resolver(answer)
    with pytest.raises(FetchError):
        reading(html(b"x"), "http://odd.example:{port}/", GuardedFetch(FetchPolicy(), resolve))


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1/latest",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:{port}/",
        "http://localhost.:{port}/",
        "file:///etc/passwd",
        "//192.168.0.1/x",
        "gopher://127.0.0.1/x",
        "http://user:pw@127.0.0.1/",
    ],
)
def test_a_redirect_is_checked_like_the_first_address(location: str) -> None:
    resolve, _ = resolver(["127.0.0.1"])

    async def resolve_name(host: str, port: int) -> list[str]:
        return await resolve(host, port) if host == "out.example" else [host]

    seen: list[bytes] = []
    with pytest.raises(FetchError):
        reading(
            says(f"302 Found\nlocation: {location}\ncontent-length: 0", seen=seen),
            "http://out.example:{port}/",
            GuardedFetch(FetchPolicy(networks=(ipaddress.ip_network("127.0.0.1/32"),)), resolve_name),
        )
    assert len(seen) == 1


def test_redirects_end_after_three() -> None:
    seen: list[bytes] = []
    with pytest.raises(FetchError, match="more than 3 times"):
        reading(says("302 Found\nlocation: /next\ncontent-length: 0", seen=seen))
    assert len(seen) == 4


def test_three_redirects_are_followed() -> None:
    hops = iter(["/1", "/2", "/3"])

    async def serve(request: bytes, writer: asyncio.StreamWriter) -> None:
        hop = next(hops, None)
        if hop is None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        else:
            writer.write(f"HTTP/1.1 307 X\r\nlocation: {hop}\r\ncontent-length: 0\r\n\r\n".encode())

    page = reading(serve)
    assert page.body == b"ok"
    assert page.url.endswith("/3")


def test_hosts_can_be_limited_to_a_list() -> None:
    resolve, _ = resolver(["127.0.0.1"])
    guard = GuardedFetch(FetchPolicy(networks=LOOPBACK, domains=("good.example",)), resolve)
    assert reading(html(b"x"), "http://www.good.example:{port}/", guard).body == b"x"
    for host in ("bad.example", "notgood.example", "good.example.bad.example"):
        with pytest.raises(FetchError, match="list of hosts"):
            reading(html(b"x"), f"http://{host}:{{port}}/", guard)


def test_a_configured_service_may_be_inside_but_may_not_redirect() -> None:
    """Search backends are the operator's own words; a redirect of theirs would carry our key elsewhere."""
    guard = GuardedFetch(FetchPolicy(domains=("x.example",)))
    seen: list[bytes] = []
    page = reading(html(b"ok", seen), fetch=guard, trusted=True, headers=b"x-key: 1\r\n", method="POST", body=b"{}")
    assert page.body == b"ok"
    assert seen[0].startswith(b"POST ")
    assert b"x-key: 1\r\n" in seen[0]
    with pytest.raises(FetchError, match="redirect"):
        reading(says("302 Found\nlocation: http://127.0.0.1/\ncontent-length: 0"), fetch=guard, trusted=True)


# -- limits, while reading


@pytest.mark.parametrize("declared", [True, False])
def test_size(declared: bool) -> None:
    body = b"x" * 5000
    length = f"\ncontent-length: {len(body)}" if declared else ""
    with pytest.raises(FetchError, match="larger than 4 KiB"):
        reading(says(f"200 OK{length}", body), most=4096)
    assert len(reading(says(f"200 OK{length}", body), most=5000).body) == 5000


def test_an_endless_body_is_cut_when_the_limit_is_reached() -> None:
    sent = 0

    async def serve(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < 1 << 30:
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    with pytest.raises(FetchError, match="larger"):
        reading(serve, most=100_000)
    assert sent < 64 << 20


def test_a_compressed_bomb_is_cut_at_the_plain_size() -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    started = time.monotonic()
    with pytest.raises(FetchError, match="larger"):
        reading(says(f"200 OK\ncontent-encoding: gzip\ncontent-length: {len(bomb)}", bomb), most=1 << 20)
    assert time.monotonic() - started < 5
    small = gzip.compress(b"hello")
    head = f"200 OK\ncontent-encoding: gzip\ncontent-length: {len(small)}"
    assert reading(says(head, small)).body == b"hello"
    with pytest.raises(FetchError):
        reading(says(f"200 OK\ncontent-encoding: gzip\ncontent-length: {len(small) - 4}", small[:-4]))
    with pytest.raises(FetchError, match="compress"):
        reading(says("200 OK\ncontent-encoding: br\ncontent-length: 1", b"x"))


def test_types() -> None:
    serve = says("200 OK\ncontent-type: application/x-elf\ncontent-length: 1", b"x")
    with pytest.raises(FetchError, match="application/x-elf"):
        reading(serve, types=("image/*",))
    image = says("200 OK\ncontent-type: image/png\ncontent-length: 1", b"x")
    assert reading(image, types=("image/*",)).media_type == "image/png"


@pytest.mark.parametrize("drip", [b"", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_time_holds_for_all_of_it(drip: bytes) -> None:
    """A silent server, endless headers, a body that drips: the clock does not start anew with each byte."""

    async def serve(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(drip)
        for _ in range(100):
            if drip:
                writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    started = time.monotonic()
    with pytest.raises(FetchError, match=r"longer than 0\.3 s"):
        reading(serve, seconds=0.3)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20,
        b"",
    ],
)
def test_what_is_no_whole_answer_is_an_error(raw: bytes) -> None:
    async def serve(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    with pytest.raises(FetchError):
        reading(serve)


def test_nobody_there() -> None:
    async def run() -> None:
        async with serving(html(b"x")) as port:
            pass
        await GuardedFetch(OPEN).fetch(Wanted(url=f"http://127.0.0.1:{port}/"))

    with pytest.raises(FetchError, match="cannot be reached"):
        asyncio.run(run())


def test_tls_is_checked_against_the_name_not_the_address(tmp_path: Path) -> None:
    """The connection goes to the checked address, SNI and the certificate to the name."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("good.example").configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)  # pyright: ignore[reportAttributeAccessIssue]
    resolve, _ = resolver(["127.0.0.1"])
    guard = GuardedFetch(OPEN, resolve, ca=str(tmp_path / "ca.pem"))

    async def run(host: str) -> Fetched:
        async with serving(html(b"tls"), context) as port:
            return await guard.fetch(Wanted(url=f"https://{host}:{port}/", seconds=5))

    assert asyncio.run(run("good.example")).body == b"tls"
    assert names == ["good.example"]
    with pytest.raises(FetchError):
        asyncio.run(run("other.example"))


@pytest.mark.parametrize("refuses", [False, True])
def test_through_a_proxy_the_checked_address_is_asked_for(refuses: bool) -> None:
    """The proxy gets the address, never the name: it cannot resolve it to something else."""
    asked: list[bytes] = []

    async def proxy(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        if refuses:
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nproxied")

    resolve, _ = resolver(["93.184.216.34"])

    async def run() -> Fetched:
        async with serving(proxy) as port:
            policy = FetchPolicy(proxy=f"http://user:pw@127.0.0.1:{port}")
            return await GuardedFetch(policy, resolve).fetch(Wanted(url="http://out.example/x", seconds=5))

    if refuses:
        with pytest.raises(FetchError, match="proxy"):
            asyncio.run(run())
    else:
        assert asyncio.run(run()).body == b"proxied"
    assert asked[0].startswith(b"CONNECT 93.184.216.34:80 HTTP/1.1\r\n")
    assert b"out.example" not in asked[0]
    assert b"proxy-authorization: Basic dXNlcjpwdw==" in asked[0]


def test_a_public_service_of_the_operator_is_reached_through_the_proxy_too() -> None:
    """Only a service in the operator's own network is spoken to directly."""
    asked: list[bytes] = []

    async def proxy(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")

    resolve, _ = resolver(["93.184.216.34"])

    async def run(url: str) -> Fetched:
        async with serving(proxy) as port, serving(html(b"direct")) as inside:
            guard = GuardedFetch(FetchPolicy(proxy=f"http://127.0.0.1:{port}"), resolve if "{" not in url else None)
            return await guard.fetch(Wanted(url=url.format(port=inside), seconds=5, trusted=True))

    with pytest.raises(FetchError, match="proxy"):
        asyncio.run(run("http://search.example/"))
    assert len(asked) == 1
    assert asyncio.run(run("http://127.0.0.1:{port}/")).body == b"direct"
    assert len(asked) == 1


def test_errors_name_no_address_of_ours() -> None:
    resolve, _ = resolver(["10.11.12.13"])
    with pytest.raises(FetchError) as caught:
        reading(html(b"x"), "http://inside.example:{port}/", GuardedFetch(FetchPolicy(), resolve))
    assert "10.11" not in caught.value.message
