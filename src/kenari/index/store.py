"""A full-text index of the operator's own documents in one SQLite file (FTS5): search without any service.

Documents are kept as passages, so that a hit shows the place that fits. The file is written by `kenari index add` only;
serving opens it read-only.
"""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from kenari.core.search import Hit, Query, SearchError

PASSAGE = 1200
"""Characters of a passage, about."""
MAX_WORDS = 32
_WORD = re.compile(r"\w+")
_SCHEMA = """
create table if not exists documents (
    id integer primary key, url text not null unique, title text not null, folder text not null, stamp text not null);
create virtual table if not exists passages using fts5(
    text, title, document unindexed, tokenize = 'unicode61 remove_diacritics 2');
"""
_FIND = """
select documents.url, documents.title, passages.text, bm25(passages, 1.0, 2.0) as rank
from passages join documents on documents.id = passages.document
where passages match ? order by rank limit ?
"""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A document to be kept. `stamp` changes when the file does; `folder` is what it was added with."""

    url: str
    title: str
    text: str
    folder: str
    stamp: str


class IndexWriter:
    """Writes an index; the file is made when it is not there."""

    def __init__(self, path: Path) -> None:
        self._base = sqlite3.connect(path)
        self._base.executescript(_SCHEMA)

    def __enter__(self) -> "IndexWriter":
        return self

    def __exit__(self, *failure: object) -> None:
        """What was added is kept only when all went well."""
        if failure[0] is None:
            self._base.commit()
        self._base.close()

    def stamps(self, folder: str) -> dict[str, str]:
        """Address -> stamp of all documents of a folder."""
        return dict(self._base.execute("select url, stamp from documents where folder = ?", (folder,)))

    def put(self, entry: Entry) -> int:
        """Keep a document, in place of an older state of it; how many passages it has."""
        self.remove(entry.url)
        row = self._base.execute(
            "insert into documents (url, title, folder, stamp) values (?, ?, ?, ?)",
            (entry.url, entry.title, entry.folder, entry.stamp),
        )
        pieces = list(passages(entry.text))
        self._base.executemany(
            "insert into passages (text, title, document) values (?, ?, ?)",
            [(piece, entry.title, row.lastrowid) for piece in pieces],
        )
        return len(pieces)

    def remove(self, url: str) -> None:
        """Forget a document."""
        for (key,) in self._base.execute("select id from documents where url = ?", (url,)).fetchall():
            self._base.execute("delete from passages where document = ?", (key,))
            self._base.execute("delete from documents where id = ?", (key,))


class IndexSearch:
    """Searches an index (core.search.Search)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def search(self, query: Query) -> list[Hit]:
        """The best passage of each of the best documents."""
        try:
            return await asyncio.to_thread(self._search, query)
        except sqlite3.Error:
            raise SearchError("the search index cannot be read") from None

    def _search(self, query: Query) -> list[Hit]:
        words = [word for word in _WORD.findall(query.text) if word][:MAX_WORDS]
        if not words:
            return []
        asked = " OR ".join(f'"{word}"' for word in words)
        hits: dict[str, Hit] = {}
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as base:
            for url, title, text, _ in base.execute(_FIND, (asked, query.limit * 20)):
                hits.setdefault(url, Hit(url, title, text))
        return list(hits.values())


def passages(text: str) -> Iterator[str]:
    """A text in pieces of about PASSAGE characters, cut between paragraphs where that is possible."""
    piece = ""
    for paragraph in re.split(r"\n\s*\n", text):
        rest = paragraph.strip()
        if piece and len(piece) + len(rest) > PASSAGE:
            yield piece
            piece = ""
        while len(rest) > PASSAGE:
            cut = max(rest.rfind(" ", 0, PASSAGE), rest.rfind("\n", 0, PASSAGE))
            cut = cut if cut > PASSAGE // 2 else PASSAGE
            yield rest[:cut]
            rest = rest[cut:].strip()
        piece = f"{piece}\n\n{rest}" if piece and rest else piece or rest
    if piece:
        yield piece
