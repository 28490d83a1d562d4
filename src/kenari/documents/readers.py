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
_SLIDE_ID = "{http://schemas.openxmlformats.org/presentationml/2006/main}sldId"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
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
        self._notes: list[str] = []
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

    def note(self, words: str) -> None:
        """Something else that is missing."""
        self._notes.append(words)

    def reading(self, total: int | None = None) -> Reading:
        """What was collected; `total` is how many pages there are."""
        if total is not None and total > self.count and not self.cut:
            self.cut = f"only the first {self.count} of {total} pages are here"
        pages = self.count if self._word else 0
        cut = "; ".join(words for words in (self.cut, *self._notes) if words)
        return Reading(text="\n\n".join(part for part in self._parts if part), pages=pages, cut=cut)

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
    if not total:
        raise UnreadableError("it has no pages")
    pages = Pages(limits, "page")
    pictures: list[int] = []
    for number in range(min(total, limits.max_pages)):
        page = document[number]
        text = _page_text(page)
        if not text.strip() and _has_picture(page, library):
            if limits.ocr:
                text = _recognised(page, limits)
            else:
                pictures.append(number + 1)
        pages.add(text)
        page.close()
        if pages.full:
            break
    if pages.empty:
        raise UnreadableError("no text was found on its pages" if limits.ocr or not pictures else _SCANNED)
    if pictures:
        pages.note(f"pages that are pictures without text: {_listed(pictures)}")
    return pages.reading(total)


def _page_text(page: Any) -> str:
    text = page.get_textpage()
    try:
        return str(text.get_text_bounded())
    finally:
        text.close()


def _has_picture(page: Any, library: Any) -> bool:
    return any(True for _ in page.get_objects(filter=(library.raw.FPDF_PAGEOBJ_IMAGE,)))


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:20])
    return shown if len(numbers) <= 20 else f"{shown} and {len(numbers) - 20} more"


def _recognised(page: Any, limits: DocumentLimits) -> str:
    """The text of a scanned page, by tesseract."""
    width, height = page.get_size()
    scale = min(OCR_SCALE, (MAX_PIXELS / max(1.0, width * height)) ** 0.5)
    bitmap: Any = page.render(scale=scale, grayscale=True)
    rows = bytes(bitmap.buffer)
    step, wide = bitmap.stride, bitmap.width
    plain = b"".join(rows[row * step : row * step + wide] for row in range(bitmap.height))
    picture = b"P5\n%d %d\n255\n%b" % (wide, bitmap.height, plain)
    bitmap.close()
    return _tesseract(picture, limits.ocr)


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
        found = _slides(archive)
        for name in found[: limits.max_pages]:
            pages.add("\n".join(_paragraphs(archive.read(name))))
            if pages.full:
                break
    return pages.reading(len(found))


def _slides(archive: zipfile.ZipFile) -> list[str]:
    """The slides in the order in which they are shown, which is not that of their numbers once some were moved."""
    names = {name for name in archive.namelist() if _SLIDE.fullmatch(name)}
    shown: list[str] = []
    try:
        links = ElementTree.fromstring(archive.read("ppt/_rels/presentation.xml.rels"))
        targets = {link.get("Id"): f"ppt/{link.get('Target', '').removeprefix('/ppt/')}" for link in links}
        listed = ElementTree.fromstring(archive.read("ppt/presentation.xml")).iter(_SLIDE_ID)
        shown = [targets.get(slide.get(_LINK), "") for slide in listed]
    except (KeyError, ElementTree.ParseError):
        pass  # by their numbers, then
    rest = sorted(names - set(shown), key=lambda name: int(name.removeprefix("ppt/slides/slide").removesuffix(".xml")))
    return [name for name in dict.fromkeys(shown) if name in names] + rest


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
