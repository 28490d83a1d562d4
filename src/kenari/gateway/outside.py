"""What comes from outside, put together: the fetcher, the reader of documents, the search backend and the tools."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kenari.core.fetched import Fetch
from kenari.core.search import Search
from kenari.documents.limits import DocumentLimits
from kenari.documents.pool import DocumentReader
from kenari.fetch.guard import GuardedFetch
from kenari.fetch.policy import FetchPolicy
from kenari.gateway.media import Media, MediaLimits
from kenari.index.store import IndexSearch
from kenari.tools.backends import BraveSearch, SearxngSearch, TavilySearch
from kenari.tools.base import ServerTool, ToolError, ToolSettings
from kenari.tools.clock import DateTime
from kenari.tools.web_fetch import ReadPage, WebFetch
from kenari.tools.web_search import WebSearch

BACKENDS = ("auto", "none", "index", "searxng", "brave", "tavily")


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[search]`. `auto` is the local index when its file is there. `price` of one search in 1e-9 currency units."""

    backend: str = "auto"
    url: str = ""
    api_key: str = ""
    index: str = "kenari-index.db"
    price: int = 0
    price_text: str = "0"


class OutsideSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The tables `[fetch]`, `[images]`, `[documents]`, `[tools]` and `[search]`."""

    fetch: FetchPolicy = FetchPolicy()
    images: MediaLimits = MediaLimits()
    documents: DocumentLimits = DocumentLimits()
    tools: ToolSettings = ToolSettings()
    search: SearchSettings = SearchSettings()


class Outside(msgspec.Struct, frozen=True):
    """What `Services` take: images and documents, and the tools by their kind."""

    media: Media
    tools: Mapping[str, ServerTool]


def make_outside(settings: OutsideSettings, now: Callable[[], float]) -> Outside:
    """Everything of these settings, in a running loop. `now` is the clock in Unix seconds."""
    fetch = GuardedFetch(settings.fetch)
    reader = DocumentReader(settings.documents)
    tools: list[ServerTool] = [DateTime(now)]
    backend = search_backend(settings.search, fetch, settings.tools.timeout)
    if backend is not None:
        tools.append(WebSearch(backend, settings.search.price))
    if settings.tools.web_fetch:
        read = _page_reader(reader)
        tools.append(WebFetch(fetch, read, settings.fetch.max_size, settings.fetch.timeout))
    return Outside(Media(fetch, reader, settings.images), {tool.kind: tool for tool in tools})


def search_backend(settings: SearchSettings, fetch: Fetch, seconds: float) -> Search | None:
    """The configured backend, None when there is none."""
    match settings.backend:
        case "searxng":
            return SearxngSearch(fetch, settings.url, seconds)
        case "brave":
            return BraveSearch(fetch, settings.api_key, seconds, settings.url)
        case "tavily":
            return TavilySearch(fetch, settings.api_key, seconds, settings.url)
        case "index":
            return IndexSearch(Path(settings.index))
        case "auto" if Path(settings.index).is_file():
            return IndexSearch(Path(settings.index))
        case _:
            return None


def _page_reader(reader: DocumentReader) -> ReadPage:
    async def read(data: bytes, name: str, media_type: str) -> str:
        reading = await reader.read(data, name, media_type)
        if reading.error:
            raise ToolError(f"what is there cannot be read: {reading.error}")
        return reading.text + (f"\n[{reading.cut}]" if reading.cut else "")

    return read
