"""Images and documents of a request, brought into the form that a target takes (S142-S145, D11).

Images are what their bytes say they are; those behind an address are fetched here when the provider does not fetch.
Documents that a model does not take itself become text. What cannot be used is a 400 that names the part.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable
from typing import Protocol, TypeAlias

import msgspec

from kenari.core.errors import KenariError, bad_request
from kenari.core.fetched import Fetch, FetchError, Wanted
from kenari.core.request import FilePart, ImagePart, Part, Request, ResultPart, TextPart, Turn
from kenari.dialects.fit.content import part_path
from kenari.dialects.fit.target import Target
from kenari.documents.limits import Reading
from kenari.wire import jsonx

Medium: TypeAlias = ImagePart | FilePart
_MEDIA = (ImagePart, FilePart)
_PDF = b"%PDF-"
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class MediaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`[images]`, and how many documents a request may hold. Sizes in bytes, times in seconds."""

    max_images: int = 100
    max_image_size: int = 20 * 1024 * 1024
    max_documents: int = 20
    max_document_size: int = 32 * 1024 * 1024
    timeout: float = 20.0


class Reader(Protocol):
    """Turns a file into text."""

    def read(self, data: bytes, name: str = "", media_type: str = "") -> Awaitable[Reading]:
        """The text of a file; a failure is a Reading with its error."""
        ...


class Media:
    """What is needed to prepare images and documents; one for the process."""

    def __init__(self, fetch: Fetch, reader: Reader, limits: MediaLimits) -> None:
        self.fetch, self.reader, self.limits = fetch, reader, limits


def has_media(request: Request) -> bool:
    """Whether there is anything to prepare. Asked of each request, so it only looks at types, and at none of plain texts."""
    if request.plain:
        return False
    for turn in request.turns:
        for part in turn.parts:
            kind = type(part)
            if kind in _MEDIA:
                return True
            if kind is ResultPart and any(type(inner) in _MEDIA for inner in part.parts):  # type: ignore[union-attr]
                return True
    return False


class Preparation:
    """One request's images and documents. What was fetched and read for one candidate serves the next ones too.

    Without `fetches` what stands behind an address is left as it is: a count is free, and reads nothing from outside.
    """

    def __init__(self, media: Media, request: Request, fetches: bool = True) -> None:
        self._media, self._request, self._fetches = media, request, fetches
        self._fetched: dict[bytes, tuple[bytes, str]] = {}
        self._texts: dict[int, FilePart] = {}
        self._check_counts()

    async def ready_for(self, target: Target) -> Request:
        """The request as this target takes its media. Raises the 400 that names the part at fault."""
        origin = self._request.origin
        found: list[tuple[Medium, str, bool]] = []
        for turn in self._request.turns:
            for index, part in enumerate(turn.parts):
                path = part_path(turn, index, origin)
                if isinstance(part, ImagePart | FilePart):
                    found.append((part, path, False))
                elif isinstance(part, ResultPart):
                    found += [(inner, path, True) for inner in part.parts if isinstance(inner, ImagePart | FilePart)]
        made = await asyncio.gather(*(self._prepare(part, path, inside, target) for part, path, inside in found))
        new = {id(part): one for (part, _, _), one in zip(found, made, strict=True) if one is not part}
        if not new:
            return self._request
        turns = [_rebuilt(turn, new) for turn in self._request.turns]
        return msgspec.structs.replace(self._request, turns=turns)

    async def _prepare(self, part: Medium, path: str, inside: bool, target: Target) -> Part:
        """One part. Inside of a tool's result a fault is a note for the model: the client's user cannot mend it."""
        try:
            if isinstance(part, FilePart) and part.media_type.startswith("image/") and part.data:
                part = ImagePart(media_type=part.media_type, data=part.data, cache=part.cache)
            if isinstance(part, ImagePart):
                return await self._image(part, path, target)
            return await self._document(part, path, target)
        except KenariError as error:
            if not inside:
                raise
            return TextPart(jsonx.escape(f"[{error.message}]"))

    # -- images

    async def _image(self, part: ImagePart, path: str, target: Target) -> ImagePart:
        limits = self._media.limits
        if part.url:
            if target.profile.image_urls or target.vision is False or not self._fetches:
                return part
            data, media_type = await self._fetch(part.url, path, IMAGE_TYPES, limits.max_image_size)
            kind = image_type(data)
            if kind is None:
                raise bad_request(f"{path}: what is at this address is no PNG, JPEG, GIF or WebP image", path)
            encoded = base64.b64encode(data)
            return ImagePart(media_type=kind or media_type, data=encoded, detail=part.detail, cache=part.cache)
        if len(part.data) * 3 // 4 > limits.max_image_size:
            raise bad_request(
                f"{path}: the image is larger than {_mib(limits.max_image_size)}. send a smaller one", path
            )
        kind = image_type(_decoded(part.data[:64], path))
        if kind is None:
            raise bad_request(f"{path}: this is no PNG, JPEG, GIF or WebP image", path)
        if kind == part.media_type:
            return part
        return ImagePart(media_type=kind, data=part.data, detail=part.detail, cache=part.cache)

    # -- documents

    async def _document(self, part: FilePart, path: str, target: Target) -> FilePart:
        if part.text:
            return part
        if part.url:
            if (target.takes_files() and target.dialect != "chat") or not self._fetches:
                return part
            data, media_type = await self._fetch(part.url, path, (), self._media.limits.max_document_size)
            name = part.filename or part.url.rsplit(b"/", 1)[-1][:100]
        else:
            data, media_type, name = _decoded(part.data, path), part.media_type, part.filename
        if data.startswith(_PDF) and target.takes_files():
            if part.url or part.media_type != "application/pdf":
                encoded = base64.b64encode(data)
                return FilePart(part.filename, "application/pdf", encoded, cache=part.cache)
            return part
        known = self._texts.get(id(part))
        if known is None:
            known = self._texts[id(part)] = await self._read(part, data, media_type, name, path)
        return known

    async def _read(self, part: FilePart, data: bytes, media_type: str, name: bytes, path: str) -> FilePart:
        shown = jsonx.unescape(name)[:200] or "document"
        reading = await self._media.reader.read(data, shown, media_type)
        if reading.error:
            raise bad_request(f"{path}: the document {_quoted(shown)} cannot be read: {reading.error}", path)
        pages = f", {reading.pages} pages" if reading.pages > 1 else ""
        note = f"; {reading.cut}" if reading.cut else ""
        text = f"[document {_quoted(shown)}{pages}]\n{reading.text}\n[end of the document{note}]"
        return FilePart(part.filename, "text/plain", text=jsonx.escape(text), cache=part.cache)

    # --

    async def _fetch(self, url: bytes, path: str, types: tuple[str, ...], most: int) -> tuple[bytes, str]:
        known = self._fetched.get(url)
        if known is not None:
            return known
        address = jsonx.unescape(url)
        try:
            wanted = Wanted(url=address, most=most, types=types, seconds=self._media.limits.timeout)
            page = await self._media.fetch.fetch(wanted)
        except FetchError as error:
            raise bad_request(f"{path}: {error.message}", path) from None
        if page.status != 200:
            raise bad_request(f"{path}: the server of this address answered with status {page.status}", path)
        self._fetched[url] = page.body, page.media_type
        return self._fetched[url]

    def _check_counts(self) -> None:
        limits = self._media.limits
        images = documents = 0
        for turn in self._request.turns:
            for index, part in enumerate(turn.parts):
                inner = part.parts if isinstance(part, ResultPart) else [part]
                images += sum(isinstance(one, ImagePart) for one in inner)
                documents += sum(isinstance(one, FilePart) for one in inner)
                if images > limits.max_images or documents > limits.max_documents:
                    path = part_path(turn, index, self._request.origin)
                    most = f"{limits.max_images} images" if images > limits.max_images else f"{documents - 1} documents"
                    raise bad_request(f"{path}: a request may hold at most {most}. send fewer", path)


def image_type(head: bytes) -> str | None:
    """The media type of an image by its first bytes, None when it is none that models take."""
    for magic, media_type in _MAGIC:
        if head.startswith(magic):
            return media_type
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


def _rebuilt(turn: Turn, new: dict[int, Part]) -> Turn:
    parts: list[Part] = []
    for part in turn.parts:
        if isinstance(part, ResultPart) and any(id(inner) in new for inner in part.parts):
            inner = [new.get(id(one), one) for one in part.parts]
            parts.append(ResultPart(part.call_id, inner, part.is_error, part.cache))
        else:
            parts.append(new.get(id(part), part))
    if all(a is b for a, b in zip(parts, turn.parts, strict=True)):
        return turn
    return msgspec.structs.replace(turn, parts=parts, touched=turn.touched | {"content"})


def _decoded(data: bytes, path: str) -> bytes:
    """Base64, with the white space and escaped slashes that JSON may hold."""
    plain = jsonx.unescape(data) if b"\\" in data else data
    try:
        return base64.b64decode(plain, validate=False)
    except (binascii.Error, ValueError):
        raise bad_request(f"{path}: this is not valid base64", path) from None


def _quoted(name: str) -> str:
    return '"' + "".join(char if char.isprintable() and char != '"' else "_" for char in name) + '"'


def _mib(size: int) -> str:
    return f"{size / (1024 * 1024):g} MiB"
