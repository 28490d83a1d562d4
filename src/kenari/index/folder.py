"""Bringing a folder into the index: new and changed files are read, those that are gone are forgotten."""

import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from kenari.index.store import Entry, IndexWriter

ReadFile: TypeAlias = Callable[[bytes, str], Awaitable[tuple[str, str]]]
"""Bytes and name of a file -> its text and, where it cannot be read, why."""

SUFFIXES = frozenset(
    [
        ".md",
        ".markdown",
        ".txt",
        ".rst",
        ".html",
        ".htm",
        ".pdf",
        ".docx",
        ".pptx",
        ".xlsx",
        ".csv",
        ".json",
        ".toml",
        ".yaml",
        ".yml",
        ".py",
        ".js",
        ".ts",
        ".go",
        ".rs",
        ".java",
        ".c",
        ".h",
        ".cpp",
        ".sh",
        ".sql",
    ]
)
MAX_FILE = 64 * 1024 * 1024
_HEADING = re.compile(r"^#{1,6}\s+(.+)$", re.M)


class Added(msgspec.Struct):
    """What was done: numbers of documents, and those that could not be read with the reason."""

    read: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: list[tuple[str, str]] = []


async def add_folder(index: IndexWriter, folder: Path, base: str, read: ReadFile) -> Added:
    """Index all files of known kinds below a folder (an absolute path). `base` is put before their paths to make their addresses."""
    name = str(folder)
    known = index.stamps(name)
    added = Added()
    seen: set[str] = set()
    for path in files_of(folder):
        url = base + quote(path.relative_to(folder).as_posix())
        seen.add(url)
        about = path.stat()
        stamp = f"{about.st_mtime_ns}-{about.st_size}"
        if known.get(url) == stamp:
            added.unchanged += 1
            continue
        if about.st_size > MAX_FILE:
            added.failed.append((path.name, "it is too large"))
            continue
        text, fault = await read(path.read_bytes(), path.name)
        if fault:
            added.failed.append((path.relative_to(folder).as_posix(), fault))
            continue
        index.put(Entry(url=url, title=title_of(text, path.stem), text=text, folder=name, stamp=stamp))
        added.read += 1
    for url in known.keys() - seen:
        index.remove(url)
        added.removed += 1
    return added


def files_of(folder: Path) -> Iterator[Path]:
    """The files of known kinds, in order; hidden ones and links that lead out of the folder are left alone."""
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.suffix.lower() in SUFFIXES and path.is_file() and root in path.resolve().parents:
            yield path


def title_of(text: str, stem: str) -> str:
    """The first heading, else the file's name."""
    found = _HEADING.search(text[:4000])
    return found.group(1).strip()[:200] if found else stem.replace("_", " ").replace("-", " ")
