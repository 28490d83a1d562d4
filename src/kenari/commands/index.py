"""`kenari index add FOLDER`: documents into the local search index."""

import argparse
import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kenari.commands.base import add_command, add_group
from kenari.config import Config
from kenari.documents.pool import DocumentReader
from kenari.index.folder import Added, ReadFile, add_folder
from kenari.index.store import IndexWriter

if TYPE_CHECKING:
    from kenari.commands.base import Commands


def add(commands: "Commands") -> None:
    """The commands of the index."""
    group = add_group(commands, "index", "documents that kenari:web_search finds without any service")
    words = add_command(
        group, "add", "read a folder into the index; run it again to bring it up to date", add_documents
    )
    words.add_argument("folder", metavar="FOLDER", help="Markdown, HTML, text, PDF, DOCX, PPTX, XLSX, source code")
    words.add_argument("--url", default="", metavar="BASE", help="where the folder is published: put before each path")


def add_documents(options: argparse.Namespace, config: Config) -> int:
    """Read the folder; 1 when it is none or the index cannot be written."""
    folder = Path(options.folder).expanduser().resolve()
    if not folder.is_dir():
        print(f"{options.folder} is no folder", file=sys.stderr)
        return 1
    base = options.url if not options.url or options.url.endswith("/") else options.url + "/"
    try:
        with IndexWriter(Path(config.outside.search.index)) as index:
            added = asyncio.run(_read(index, folder, base or "file:", config))
    except (sqlite3.Error, OSError) as error:
        print(f"the index {config.outside.search.index} cannot be written: {type(error).__name__}", file=sys.stderr)
        return 1
    for name, fault in added.failed:
        print(f"{name}: {fault}", file=sys.stderr)
    print(f"{added.read} read, {added.unchanged} unchanged, {added.removed} removed, {len(added.failed)} not read")
    return 0


async def _read(index: IndexWriter, folder: Path, base: str, config: Config) -> Added:
    return await add_folder(index, folder, base, _reader(config))


def _reader(config: Config) -> ReadFile:
    documents = DocumentReader(config.outside.documents)

    async def read(data: bytes, name: str) -> tuple[str, str]:
        reading = await documents.read(data, name)
        return reading.text, reading.error

    return read
