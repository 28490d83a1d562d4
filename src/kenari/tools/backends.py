"""Search services of others: what is asked of each, and how its answer is read. Only the query goes there (docs/tools.md)."""

from typing import Any, TypeAlias, cast
from urllib.parse import urlencode

from kenari.core.fetched import Fetch, FetchError, Wanted
from kenari.core.search import Hit, Query, SearchError
from kenari.wire import jsonx

Json: TypeAlias = "dict[str, Any]"
MAX_ANSWER = 4 * 1024 * 1024
MAX_QUERY = 400
"""Characters of a query; services refuse longer ones."""
BRAVE = "https://api.search.brave.com/res/v1/web/search"
TAVILY = "https://api.tavily.com/search"


class SearxngSearch:
    """Any server that answers like SearXNG's `/search?format=json`. `url` is its address without that path."""

    def __init__(self, fetch: Fetch, url: str, seconds: float) -> None:
        self._fetch, self._url, self._seconds = fetch, url.rstrip("/"), seconds

    async def search(self, query: Query) -> list[Hit]:
        """The best hits first."""
        asked = urlencode({"q": _with_sites(query), "format": "json"})
        wanted = Wanted(url=f"{self._url}/search?{asked}", seconds=self._seconds, most=MAX_ANSWER, trusted=True)
        body = await _ask(self._fetch, wanted)
        return [_hit(one, "content") for one in _objects(body, "results")]


class BraveSearch:
    """Brave's web search."""

    def __init__(self, fetch: Fetch, key: str, seconds: float, url: str = "") -> None:
        self._fetch, self._key, self._seconds, self._url = fetch, key, seconds, url or BRAVE

    async def search(self, query: Query) -> list[Hit]:
        """The best hits first."""
        asked = urlencode({"q": _with_sites(query), "count": min(20, query.limit * 2)})
        headers = f"accept: application/json\r\nx-subscription-token: {self._key}\r\n".encode()
        wanted = Wanted(
            url=f"{self._url}?{asked}", headers=headers, seconds=self._seconds, most=MAX_ANSWER, trusted=True
        )
        body = await _ask(self._fetch, wanted)
        web = body.get("web")
        return [
            _hit(one, "description") for one in _objects(cast("Json", web) if isinstance(web, dict) else {}, "results")
        ]


class TavilySearch:
    """Tavily's search."""

    def __init__(self, fetch: Fetch, key: str, seconds: float, url: str = "") -> None:
        self._fetch, self._key, self._seconds, self._url = fetch, key, seconds, url or TAVILY

    async def search(self, query: Query) -> list[Hit]:
        """The best hits first."""
        asked: Json = {"query": query.text[:MAX_QUERY], "max_results": query.limit}
        if query.allowed:
            asked["include_domains"] = query.allowed
        if query.blocked:
            asked["exclude_domains"] = query.blocked
        headers = f"content-type: application/json\r\nauthorization: Bearer {self._key}\r\n".encode()
        wanted = Wanted(
            url=self._url,
            method="POST",
            headers=headers,
            body=jsonx.encode(asked),
            seconds=self._seconds,
            most=MAX_ANSWER,
            trusted=True,
        )
        return [_hit(one, "content") for one in _objects(await _ask(self._fetch, wanted), "results")]


async def _ask(fetch: Fetch, wanted: Wanted) -> Json:
    try:
        page = await fetch.fetch(wanted)
    except FetchError:
        raise SearchError("the search service cannot be reached") from None
    if page.status != 200:
        why = {401: "refused this server's key", 403: "refused this server", 429: "is rate limiting"}
        raise SearchError(f"the search service {why.get(page.status, f'failed (status {page.status})')}")
    try:
        body = jsonx.value(page.body)
    except jsonx.Malformed:
        body = None
    if not isinstance(body, dict):
        raise SearchError("the search service sent no JSON")
    return cast("Json", body)


def _objects(body: Json, name: str) -> list[Json]:
    """The objects of a list; what is none is skipped."""
    found = body.get(name)
    if not isinstance(found, list):
        return []
    return [cast("Json", one) for one in cast("list[Any]", found) if isinstance(one, dict)]


def _hit(one: Json, text: str) -> Hit:
    words = {name: one[name] if isinstance(one.get(name), str) else "" for name in ("url", "title", text)}
    return Hit(words["url"], words["title"], words[text])


def _with_sites(query: Query) -> str:
    """The query with its domains in the words that engines know; they are checked again on what comes back."""
    text = query.text[:MAX_QUERY]
    sites = " OR ".join(f"site:{domain}" for domain in query.allowed[:5])
    return f"{text} ({sites})" if sites else text
