"""Which sources an answer cites, and where: `url_citation` annotations of a finished text (D13)."""

from typing import Any

from kenari.core.events import Escaped, Source
from kenari.wire import jsonx

MAX_CITATIONS = 64


def annotations(text: Escaped, sources: tuple[Source, ...]) -> list[dict[str, Any]]:
    """A citation for each place where a source's address or its number in brackets stands. A text that names none of
    them is marked as a whole with all of them: they are what it rests on. Places are in characters."""
    plain = jsonx.unescape(text)
    found: list[tuple[int, int, Source]] = []
    for number, source in enumerate(sources, 1):
        for mark in (source.url, f"[{number}]"):
            start = plain.find(mark)
            while start >= 0 and len(found) < MAX_CITATIONS:
                found.append((start, start + len(mark), source))
                start = plain.find(mark, start + len(mark))
    if not found and plain.strip():
        found = [(0, len(plain), source) for source in sources]
    found.sort(key=lambda one: (one[0], -one[1]))
    return [
        {"type": "url_citation", "start_index": start, "end_index": end, "url": source.url, "title": source.title}
        for start, end, source in found
    ]
