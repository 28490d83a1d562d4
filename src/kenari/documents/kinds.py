"""What a file is, by its bytes first and by its name and type only where bytes do not tell (pure)."""

import io
import zipfile
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["pdf", "docx", "xlsx", "pptx", "xls", "html", "text", "image"]

MAX_ENTRIES = 10_000
MAX_UNPACKED = 512 * 1024 * 1024
"""Bytes that an office file may unpack to, by its own table of contents; a worker's memory ends it earlier."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_BINARY = bytes([*range(9), *range(14, 27), *range(28, 32)])


class UnreadableError(Exception):
    """The file cannot be read. `message` says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def kind_of(data: bytes, name: str, media_type: str) -> Kind:
    """The kind of a file. Raises UnreadableError for what is encrypted, broken or of no kind that is read here."""
    if not data:
        raise UnreadableError("it is empty")
    if b"%PDF-" in data[:1024]:
        return "pdf"
    if data.startswith(b"PK\x03\x04"):
        return _in_zip(data)
    if data.startswith(_OLE):
        return _in_ole(data)
    if data.startswith(_IMAGES) or (data.startswith(b"RIFF") and data[8:12] == b"WEBP"):
        return "image"
    if media_type == "application/pdf" or name.lower().endswith(".pdf"):
        raise UnreadableError("it is no PDF: it does not begin like one")
    if not is_text(data):
        raise UnreadableError("it is of a kind that is not read here. send PDF, DOCX, XLSX, PPTX, HTML or text")
    head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    html = media_type in ("text/html", "application/xhtml+xml") or name.lower().endswith((".html", ".htm", ".xhtml"))
    return "html" if html or head.startswith((b"<!doctype html", b"<html")) else "text"


def is_text(data: bytes) -> bool:
    """Whether bytes are text in UTF-8, UTF-16 with its mark, or an eight-bit code."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    sample = data[:65536]
    return len(sample.translate(None, _BINARY)) == len(sample)


def decode(data: bytes, charset: str = "") -> str:
    """Text of bytes: by its mark, the named charset, UTF-8, else Windows' Western code, which takes nearly anything."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    for name in (charset, "utf-8-sig", "cp1252"):
        try:
            if name:
                return data.decode(name)
        except (LookupError, ValueError):
            continue
    return data.decode("latin-1")


def _in_zip(data: bytes) -> Kind:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise UnreadableError("it is broken or cut short. send the whole file") from None
    if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > MAX_UNPACKED:
        raise UnreadableError("it unpacks to far more than a document holds")
    names = {entry.filename for entry in entries}
    if any(entry.flag_bits & 1 for entry in entries):
        raise UnreadableError("it is protected by a password. send it without one")
    if "word/document.xml" in names:
        return "docx"
    if "ppt/presentation.xml" in names:
        return "pptx"
    if names & {"xl/workbook.xml", "xl/workbook.bin"}:
        return "xlsx"
    raise UnreadableError("it is an archive that is not read here. send DOCX, XLSX or PPTX, or the files in it")


def _in_ole(data: bytes) -> Kind:
    """Old office files, and new ones behind a password."""
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise UnreadableError("it is protected by a password. send it without one")
    if "Workbook".encode("utf-16-le") in data or "Book".encode("utf-16-le") in data:
        return "xls"
    raise UnreadableError("it is an old office format that is not read here. save it as DOCX, PPTX or PDF")
