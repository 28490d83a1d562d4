"""Documents into text: real files of real programs, broken ones, and files made to do harm."""

import asyncio
import importlib
import io
import os
import re
import shutil
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kenari.documents.kinds import UnreadableError, decode, kind_of
from kenari.documents.limits import DocumentLimits, Reading
from kenari.documents.pool import DocumentReader

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "documents"
REPORT = ("Laporan kuartal", "marker-one", "marker-two", "Surabaya", "17", "marker-three")


def read(data: bytes, name: str = "", media_type: str = "", **limits: object) -> Reading:
    async def run() -> Reading:
        reader = DocumentReader(DocumentLimits(**limits))  # pyright: ignore[reportArgumentType]
        reading = await reader.read(data, name, media_type)
        assert reader.alive == 0
        return reading

    return asyncio.run(run())


def sample(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "pages", "words"),
    [
        ("report.docx", 0, REPORT),
        ("report.pdf", 1, REPORT),
        ("sheet.xlsx", 1, ("[sheet 1]\nsheet", "Jakarta\t42", "Surabaya\t17.5", "marker-sheet")),
        ("sheet.xls", 1, ("Jakarta\t42", "marker-sheet")),
        ("deck.pptx", 2, ("[slide 1]\nFirst slide marker-slide-one", "[slide 2]\nSecond slide\nmarker-slide-two")),
        ("long.pdf", 500, ("[page 1]\n", "marker-001", "[page 500]\n", "marker-500")),
    ],
)
def test_s145_real_files_become_their_text(name: str, pages: int, words: tuple[str, ...]) -> None:
    """S145: in the order of the document, with marks of its pages. The name says nothing: bytes do."""
    reading = read(sample(name), "file.bin", "application/octet-stream")
    assert (reading.error, reading.pages, reading.cut) == ("", pages, "")
    places = [reading.text.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


def test_tables_keep_their_cells_together() -> None:
    assert "| Jakarta  | 42    |" in read(sample("report.docx")).text


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (b"a,b\n1,2\n", "x.csv", "a,b\n1,2"),
        ("h\u00e9".encode(), "x.md", "h\u00e9"),
        ("h\u00e9".encode("utf-16"), "x.txt", "h\u00e9"),
        ("h\u00e9".encode("cp1252"), "x.txt", "h\u00e9"),
        (b'{"a": 1}', "x.json", '{"a": 1}'),
        (b"def f():\n    return 1\n", "x.py", "def f():\n    return 1"),
        (b"<!doctype html><h1>T</h1><script>bad()</script><p>x <b>y</b></p>", "", "# T\n\nx **y**"),
        (b"<p>x</p>", "x.html", "x"),
    ],
)
def test_text_of_many_kinds(data: bytes, name: str, text: str) -> None:
    assert read(data, name) == Reading(text=text)


def test_what_was_cut_is_said() -> None:
    few = read(sample("long.pdf"), max_pages=3)
    assert (few.pages, few.cut) == (3, "only the first 3 of 500 pages are here")
    assert "marker-004" not in few.text
    short = read(sample("long.pdf"), max_text=1000)
    assert "1000 characters" in short.cut
    assert len(short.text) < 1500
    assert "5 characters" in read(b"a long text", max_text=5).cut


@pytest.mark.parametrize(
    ("data", "name", "why"),
    [
        (sample("encrypted.pdf"), "", "password"),
        (sample("scanned.pdf"), "", "pictures of pages"),
        (sample("report.pdf")[:900], "", "broken"),
        (sample("report.docx")[:3000], "", "broken"),
        (sample("sheet.xlsx")[:3000], "", "broken"),
        (b"%PDF-1.7\n" + os.urandom(2000), "", "broken"),
        (b"", "x.txt", "empty"),
        (b"hello", "x.pdf", "no PDF"),
        (b"\x7fELF" + b"\0" * 100, "x", "not read here"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 10, "x.png", "image"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "x.docx", "password"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "WordDocument".encode("utf-16-le"), "x.doc", "old office format"),
        (b"x" * 2048, "x.txt", "larger than"),
    ],
)
def test_what_cannot_be_read_is_said_clearly(data: bytes, name: str, why: str) -> None:
    reading = read(data, name, max_size=1024) if why == "larger than" else read(data, name)
    assert why in reading.error
    assert reading.text == ""


def test_a_scanned_page_is_read_where_ocr_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program the error says so; with it, its words are the page's. (A stand-in: it gets a real picture.)"""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "tesseract is not installed" in read(sample("scanned.pdf"), ocr="eng").error
    program = tmp_path / "tesseract"
    program.write_text('#!/bin/sh\nIFS= read -r line\nread -r size\necho "seen $line $size $4"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    reading = read(sample("scanned.pdf"), ocr="eng+ind")
    assert reading.text.startswith("[page 1]\nseen P5 ")
    assert reading.text.endswith("eng+ind")


def changed(archive: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """An archive with one file of it changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            new.writestr(entry, change(old.read(entry)) if entry == name else old.read(entry))
    return out.getvalue()


def test_slides_stand_in_the_order_in_which_they_are_shown() -> None:
    """A slide that was moved keeps its number."""

    def swap(text: bytes) -> bytes:
        first, second = re.findall(rb"<p:sldId [^>]*/>", text)
        return text.replace(first, b"@").replace(second, first).replace(b"@", second)

    text = read(changed(sample("deck.pptx"), "ppt/presentation.xml", swap)).text
    assert 0 <= text.index("[slide 1]\nSecond slide") < text.index("[slide 2]\nFirst slide")
    broken = read(changed(sample("deck.pptx"), "ppt/presentation.xml", lambda _: b"<")).text
    assert broken.index("First slide") < broken.index("Second slide")


def joined(*names: str) -> bytes:
    """One PDF of the pages of several."""
    library: Any = importlib.import_module("pypdfium2")  # it has no types
    whole = library.PdfDocument.new()
    for name in names:
        whole.import_pages(library.PdfDocument(sample(name)))
    out = io.BytesIO()
    whole.save(out)
    return out.getvalue()


def test_a_page_without_text_among_others_is_said_or_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A contract with one scanned page must not look whole."""
    mixed = joined("report.pdf", "scanned.pdf", "report.pdf", "scanned.pdf")
    reading = read(mixed)
    assert (reading.pages, reading.error) == (4, "")
    assert reading.cut == "pages that are pictures without text: 2, 4"
    program = tmp_path / "tesseract"
    program.write_text("#!/bin/sh\necho recognised\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    reading = read(mixed, ocr="eng")
    assert reading.cut == ""
    assert [page for page in reading.text.split("[page ")[1:] if "recognised" in page] == [
        "2]\nrecognised\n\n",
        "4]\nrecognised",
    ]


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed here")
def test_a_scanned_page_is_read_by_the_real_tesseract() -> None:
    """LibreOffice's page as a picture, read back; another language than those installed is the operator's affair."""
    reading = read(sample("scanned.pdf"), ocr="eng", timeout=120.0)
    assert (reading.error, reading.pages) == ("", 1)
    for word in ("[page 1]", "Laporan kuartal", "marker-one", "marker-two", "Surabaya", "marker-three"):
        assert word in reading.text
    assert "ask the operator to check documents.ocr" in read(sample("scanned.pdf"), ocr="xxx", timeout=120.0).error


def zipped(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def bomb(size: int) -> bytes:
    """A DOCX whose text unpacks to this many bytes of elements, each of which takes a hundred times its own length."""
    return zipped("word/document.xml", b"<w>" + b"<a/>" * (size // 4) + b"</w>")


def declaring(archive: bytes, size: int) -> bytes:
    """The same archive with another unpacked size in its table of contents."""
    at = archive.rindex(b"PK\x01\x02") + 24
    return archive[:at] + struct.pack("<L", size) + archive[at + 4 :]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(bomb(64 << 20), "more memory", id="honest"),
        pytest.param(declaring(bomb(64 << 20), 1 << 16), "broken", id="says it is small"),
        pytest.param(declaring(bomb(1 << 20), 600 << 20), "unpacks", id="says it is huge"),
    ],
)
def test_a_bomb_kills_its_worker_only(data: bytes, why: str) -> None:
    """Whatever it declares, memory is the worker's own; the server's stays as it was, and the next file is read."""
    process = psutil.Process()
    assert len(data) < 1 << 20
    before = process.memory_info().rss
    assert why in read(data, memory=160 << 20).error
    assert process.memory_info().rss - before < 16 << 20
    assert read(b"fine", "x.txt").text == "fine"
    assert read(sample("report.docx")).error == ""


def test_an_entity_bomb_is_no_text() -> None:
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    slide = f'<!DOCTYPE s [<!ENTITY a0 "ha">{entities}]><s><p>&a11;</p></s>'.encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("ppt/presentation.xml", b"<p/>")
        archive.writestr("ppt/slides/slide1.xml", slide)
    started = time.monotonic()
    assert read(out.getvalue(), memory=256 << 20).error
    assert time.monotonic() - started < 15


def test_a_hang_is_killed_in_time() -> None:
    """A PDF stream that inflates for ever would do; a worker that gets no time at all is the same."""
    started = time.monotonic()
    assert "takes longer than 0.05 s" in read(sample("long.pdf"), timeout=0.05).error
    assert time.monotonic() - started < 5
    children = psutil.Process().children(recursive=True)
    assert [child for child in children if "kenari.documents.worker" in " ".join(child.cmdline())] == []


def test_a_reader_that_is_left_kills_its_worker() -> None:
    """The client went away: nobody waits for the text."""

    async def run() -> None:
        reader = DocumentReader(DocumentLimits())
        task = asyncio.create_task(reader.read(sample("long.pdf")))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reader.alive == 0

    asyncio.run(run())


def test_a_worker_sees_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("KENARI_SECRET", "root")
    seen: dict[str, str] = {}
    run = asyncio.create_subprocess_exec

    async def spy(*arguments: object, **more: object) -> object:
        seen.update(more["env"])  # pyright: ignore[reportArgumentType, reportCallIssue]
        return await run(*arguments, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spy)
    assert read(sample("report.pdf")).error == ""
    assert "PATH" in seen
    assert not {"OPENAI_API_KEY", "KENARI_SECRET"} & seen.keys()


def test_only_a_few_workers_run_at_once() -> None:
    async def run() -> int:
        reader = DocumentReader(DocumentLimits(workers=2))
        tasks = [asyncio.create_task(reader.read(sample("report.pdf"))) for _ in range(5)]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, reader.alive)
            await asyncio.sleep(0.005)
        assert all(not task.result().error for task in tasks)
        return most

    assert asyncio.run(run()) == 2


def test_kinds() -> None:
    assert kind_of(zipped("xl/workbook.xml", b""), "", "") == "xlsx"
    with pytest.raises(UnreadableError, match="archive"):
        kind_of(zipped("x.txt", b""), "", "")
    assert kind_of(b"RIFF\0\0\0\0WEBPVP8 ", "", "") == "image"
    assert decode(b"\xe9", "iso-8859-1") == "\u00e9"
    assert decode(b"\xe9", "no-such-code") == "\u00e9"
