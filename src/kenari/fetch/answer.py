"""Reading one HTTP/1.1 answer from a stranger: limits hold while it is read, not afterwards."""

import httptools

from kenari.core.fetched import FetchError
from kenari.wire.inflate import CodingError, Inflater, TooLargeError

MAX_HEAD = 64 * 1024
"""Bytes of heads, trailers and framing that may come without a byte of body between them."""
MAX_INTERIM = 8
REDIRECTS = (301, 302, 303, 307, 308)


class Answer:
    """Takes bytes until `complete`. `most` is the largest body in bytes, `types` the media types that are taken."""

    def __init__(self, most: int, types: tuple[str, ...]) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self._most, self._types = most, types
        self._pieces: list[bytes] = []
        self._size = self._void = self._interim = 0
        self._headed = False
        self._inflater: Inflater | None = None
        self._error: FetchError | None = None
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises FetchError when a limit is reached or the bytes are no HTTP."""
        self._void += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            raise self._error or FetchError("the server there does not speak proper HTTP") from None
        if self._void > MAX_HEAD and not self.complete:
            raise FetchError("the server there sends endless headers")

    def end(self) -> None:
        """The connection has ended. Raises FetchError when the answer is not whole."""
        if self.complete:
            return
        framed = b"content-length" in self.headers or b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
        if not self._headed or framed:
            raise FetchError("the server there broke off its answer")
        self.complete = True

    @property
    def body(self) -> bytes:
        """The whole body, plain. Raises FetchError when its compression is cut short."""
        if self._inflater is not None and not self._inflater.complete:
            raise FetchError("the server there broke off its answer")
        return b"".join(self._pieces)

    @property
    def media_type(self) -> str:
        """The bare media type, lower case, "" when there is none."""
        return self._content_type().partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The charset that the server names, "" when it names none."""
        for parameter in self._content_type().split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip("\"'").lower()[:40]
        return ""

    # -- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers are not for us, and of repeated ones the first counts."""
        if not self._headed:
            self.headers.setdefault(name.lower(), value.strip())

    def on_headers_complete(self) -> None:
        """The head is whole: what it says is held against the limits before any body is read."""
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = {}
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._refuse("the server there does not speak proper HTTP")
            return
        self.status = status
        self._headed = True
        if status in REDIRECTS:
            return
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self._most:
            self._refuse(_too_large(self._most))
        if 200 <= status < 300 and self._types and not takes(self.media_type, self._types):
            shown = "".join(char for char in self.media_type if char.isalnum() or char in "/+-.")[:64]
            self._refuse(f"what is there is of the type {shown or 'unknown'}, which is not taken here")
        coding = self.headers.get(b"content-encoding", b"identity").lower()
        if coding not in (b"identity", b""):
            try:
                self._inflater = Inflater(coding)
            except CodingError:
                self._refuse("what is there is compressed in an unknown way")

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._void = 0
        if self.status in REDIRECTS:
            return
        try:
            plain = data if self._inflater is None else self._inflater.feed(data, self._most - self._size)
        except TooLargeError:
            self._refuse(_too_large(self._most))
        except CodingError:
            self._refuse("what is there is broken: its compression cannot be undone")
        else:
            self._size += len(plain)
            if self._size > self._most:
                self._refuse(_too_large(self._most))
            self._pieces.append(plain)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        self.complete = self._headed

    # --

    def _content_type(self) -> str:
        return self.headers.get(b"content-type", b"").decode("latin-1")

    def _refuse(self, message: str) -> None:
        """Stop the parser; `feed` raises this error."""
        self._error = self._error or FetchError(message)
        raise self._error


def takes(media_type: str, types: tuple[str, ...]) -> bool:
    """Whether a media type is among these; `image/*` takes all images."""
    return any(
        media_type == wanted or (wanted.endswith("*") and media_type.startswith(wanted[:-1])) for wanted in types
    )


def _too_large(most: int) -> str:
    return f"what is there is larger than {most // 1024} KiB"
