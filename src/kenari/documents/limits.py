"""How much of a document is read, and what reading it may cost."""

import msgspec


class DocumentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`[documents]`. `max_size` is in bytes of the file, `max_text` in characters of what is sent on, `memory` in bytes
    of a worker's address space, `timeout` in seconds of its life. `ocr` are tesseract's languages (`eng+ind`), ""
    for none."""

    max_count: int = 20
    max_size: int = 32 * 1024 * 1024
    max_pages: int = 1000
    max_text: int = 2_000_000
    memory: int = 768 * 1024 * 1024
    timeout: float = 30.0
    workers: int = 2
    ocr: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told of a file, besides its bytes."""

    name: str
    media_type: str
    limits: DocumentLimits


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker found: the text and how many pages it has (0: it has none), what was cut, or an error in words."""

    text: str = ""
    pages: int = 0
    cut: str = ""
    error: str = ""
