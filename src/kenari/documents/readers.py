"""The text of a document: runs in a worker process, since these files come from strangers.

The libraries are the extra `kenari[docs]`; each is loaded only for the kind that needs it.
"""

import importlib
import io
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from kenari.documents.kinds import Kind, UnreadableError, decode, kind_of
from kenari.documents.limits import DocumentLimits, Job, Reading

_PARAGRAPH = "{http://schemas.openxmlformats.org/drawingml/2006/main}p"
_RUN = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
_SLIDE = re.compile(r"ppt/slides/slide(\d+)\.xml")
_BLANK_LINES = re.compile(r"\n{3,}")
OCR_SCALE = 2.5
"""Pages are drawn at 72 dpi times this for OCR."""
MAX_PIXELS = 30_000_000
_MISSING = "this server cannot read this kind of document: the operator has to install kenari[docs]. send it as text"
_SCANNED = (
    "it holds pictures of pages and no text. send a PDF with text, send the pages as images, or ask the operator to "
    "set documents.ocr"
)
_BROKEN = "it is broken or cut short. send the whole file"


class Pages:
    """Collects pages of text up to the limits; `full` when no more is taken."""

    def __init__(self, limits: DocumentLimits, word: str) -> None:
        self._limits, self._word = limits, word
        self._parts: list[str] = []
        self._size = 0
        self.count = 0
        self.full = False
        self.cut = ""

    def add(self, text: str) -> None:
        """The next page."""
        text = _BLANK_LINES.sub("\n\n", text.replace("\r\n", "\n").replace("\0", "")).strip()
        self.count += 1
        left = self._limits.max_text - self._size
        if len(text) > left:
            text = text[:left]
            self.full, self.cut = True, f"the rest behind {self._limits.max_text} characters was left out"
        self._parts.append(f"[{self._word} {self.count}]\n{text}" if self._word else text)
        self._size += len(text)

    def reading(self, total: int | None = None) -> Reading:
        """What was collected; `total` is how many pages there are."""
        if total is not None and total > self.count and not self.cut:
            self.cut = f"only the first {self.count} of {total} pages are here"
        pages = self.count if self._word else 0
        return Reading(text="\n\n".join(part for part in self._parts if part), pages=pages, cut=self.cut)

    @property
    def empty(self) -> bool:
        """No page has a letter."""
        return self._size == 0


def read_document(data: bytes, job: Job) -> Reading:
    """The text of a file. What cannot be read is a Reading with an error in words for people."""
    try:
        kind = kind_of(data, job.name, job.media_type)
        reader = READERS.get(kind)
        if reader is None:
            raise UnreadableError("it is an image. send it as an image part")
        return reader(data, job.limits)
    except UnreadableError as error:
        return Reading(error=error.message)
    except ImportError:
        return Reading(error=_MISSING)
    except MemoryError:
        return Reading(error="reading it takes more memory than is allowed here")
    except Exception:  # noqa: BLE001 - whatever a library raises for a broken file, the file is what is wrong
        return Reading(error=_BROKEN)


def _pdf(data: bytes, limits: DocumentLimits) -> Reading:
    library: Any = importlib.import_module("pypdfium2")
    try:
        document: Any = library.PdfDocument(data)
    except library.PdfiumError as error:
        locked = "password" in str(error).lower() or "security" in str(error).lower()
        words = "it is protected by a password. send it without one" if locked else _BROKEN
        raise UnreadableError(words) from None
    total = len(document)
    pages = Pages(limits, "page")
    for number in range(min(total, limits.max_pages)):
        page = document[number]
        text = page.get_textpage()
        pages.add(text.get_text_bounded())
        text.close()
        page.close()
        if pages.full:
            break
    if not total:
        raise UnreadableError("it has no pages")
    if not pages.empty:
        return pages.reading(total)
    if not limits.ocr:
        raise UnreadableError(_SCANNED)
    return _recognised(document, total, limits)


def _recognised(document: Any, total: int, limits: DocumentLimits) -> Reading:
    """A scanned PDF through tesseract, page by page."""
    pages = Pages(limits, "page")
    for number in range(min(total, limits.max_pages)):
        page = document[number]
        width, height = page.get_size()
        scale = min(OCR_SCALE, (MAX_PIXELS / max(1.0, width * height)) ** 0.5)
        bitmap: Any = page.render(scale=scale, grayscale=True)
        rows = bytes(bitmap.buffer)
        step, wide = bitmap.stride, bitmap.width
        plain = b"".join(rows[row * step : row * step + wide] for row in range(bitmap.height))
        picture = b"P5\n%d %d\n255\n%b" % (wide, bitmap.height, plain)
        bitmap.close()
        page.close()
        pages.add(_tesseract(picture, limits.ocr))
        if pages.full:
            break
    if pages.empty:
        raise UnreadableError("no text was found on its pages")
    return pages.reading(total)


def _tesseract(picture: bytes, languages: str) -> str:
    try:
        done = subprocess.run(
            ["tesseract", "stdin", "stdout", "-l", languages], input=picture, capture_output=True, check=False
        )
    except OSError:
        raise UnreadableError("documents.ocr is set, but tesseract is not installed on this server") from None
    if done.returncode:
        raise UnreadableError("tesseract could not read its pages. ask the operator to check documents.ocr")
    return done.stdout.decode("utf-8", "replace")


def _docx(data: bytes, limits: DocumentLimits) -> Reading:
    """Paragraphs, lists and tables in their order."""
    library: Any = importlib.import_module("mammoth")
    ignored: Callable[[Any], list[Any]] = lambda image: []  # noqa: E731 - pictures are not text
    made: Any = library.convert_to_html(io.BytesIO(data), convert_image=ignored)
    return _html(made.value.encode(), limits)


def _pptx(data: bytes, limits: DocumentLimits) -> Reading:
    pages = Pages(limits, "slide")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = [(int(match.group(1)), name) for name in archive.namelist() if (match := _SLIDE.fullmatch(name))]
        found.sort()
        for _, name in found[: limits.max_pages]:
            pages.add("\n".join(_paragraphs(archive.read(name))))
            if pages.full:
                break
    return pages.reading(len(found))


def _paragraphs(slide: bytes) -> Iterator[str]:
    for paragraph in ElementTree.fromstring(slide).iter(_PARAGRAPH):
        text = "".join(run.text or "" for run in paragraph.iter(_RUN))
        if text.strip():
            yield text


def _sheets(data: bytes, limits: DocumentLimits) -> Reading:
    library: Any = importlib.import_module("python_calamine")
    try:
        book: Any = library.CalamineWorkbook.from_filelike(io.BytesIO(data))
    except library.PasswordError:
        raise UnreadableError("it is protected by a password. send it without one") from None
    pages = Pages(limits, "sheet")
    names: list[str] = book.sheet_names
    for name in names[: limits.max_pages]:
        lines = [name]
        size = 0
        for row in book.get_sheet_by_name(name).iter_rows():
            line = "\t".join(_cell(value) for value in row).rstrip()
            size += len(line)
            if line:
                lines.append(line)
            if size > limits.max_text:
                break
        pages.add("\n".join(lines))
        if pages.full:
            break
    return pages.reading(len(names))


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value).replace("\n", " ").replace("\t", " ")


def _html(data: bytes, limits: DocumentLimits) -> Reading:
    library: Any = importlib.import_module("html_to_markdown")
    options: Any = library.ConversionOptions(skip_images=True, extract_metadata=False, max_depth=400)
    made: Any = library.convert(decode(data), options)
    pages = Pages(limits, "")
    pages.add(made if isinstance(made, str) else made.content or "")
    return pages.reading()


def _text(data: bytes, limits: DocumentLimits) -> Reading:
    pages = Pages(limits, "")
    pages.add(decode(data))
    return pages.reading()


READERS: dict[Kind, Callable[[bytes, DocumentLimits], Reading]] = {
    "pdf": _pdf,
    "docx": _docx,
    "pptx": _pptx,
    "xlsx": _sheets,
    "xls": _sheets,
    "html": _html,
    "text": _text,
}
