"""`[fetch]`, `[images]`, `[documents]`, `[tools]`, `[search]`: what comes from outside, and what kenari does itself."""

import re
from typing import Any

from kenari.config.table import LARGEST, Secret, Table
from kenari.core.price import parse_amount
from kenari.documents.limits import DocumentLimits
from kenari.fetch.policy import FetchPolicy
from kenari.gateway.loop import MAX_ROUNDS
from kenari.gateway.media import MediaLimits
from kenari.gateway.outside import BACKENDS, OutsideSettings, SearchSettings
from kenari.tools.base import ToolSettings

_OCR = re.compile(r"[A-Za-z_]{3,16}(\+[A-Za-z_]{3,16})*\Z")


def read_outside(top: Table) -> OutsideSettings:
    """The five tables of a configuration."""
    documents = _documents(top.child("documents"))
    return OutsideSettings(
        fetch=_fetch(top.child("fetch")),
        images=_images(top.child("images"), documents),
        documents=documents,
        tools=_tools(top.child("tools")),
        search=_search(top.child("search")),
    )


def _fetch(table: Table) -> FetchPolicy:
    default = FetchPolicy()
    proxy = table.text("proxy")
    if proxy and not re.match(r"http://[^/\s]+/?\Z", proxy):
        table.fault("proxy", 'must be an address like "http://user:password@proxy.example:3128"')
    policy = FetchPolicy(
        proxy=Secret(proxy),
        networks=table.networks("allow_networks"),
        domains=tuple(domain.lower().strip(".") for domain in table.texts("only_domains")),
        timeout=table.seconds("timeout", default.timeout),
        max_size=table.size("max_size", default.max_size),
    )
    table.close()
    return policy


def _images(table: Table, documents: DocumentLimits) -> MediaLimits:
    default = MediaLimits()
    limits = MediaLimits(
        max_images=_whole(table, "max_count", default.max_images, 0),
        max_image_size=table.size("max_size", default.max_image_size),
        max_documents=documents.max_count,
        max_document_size=documents.max_size,
        timeout=table.seconds("timeout", default.timeout),
    )
    table.close()
    return limits


def _documents(table: Table) -> DocumentLimits:
    default = DocumentLimits()
    ocr = table.text("ocr")
    if ocr and not _OCR.match(ocr):
        table.fault("ocr", 'must be languages of tesseract like "eng" or "eng+ind"')
    limits = DocumentLimits(
        max_count=_whole(table, "max_count", default.max_count, 0),
        max_size=table.size("max_size", default.max_size),
        max_pages=_whole(table, "max_pages", default.max_pages, 1),
        max_text=_whole(table, "max_text", default.max_text, 1),
        memory=table.size("memory", default.memory),
        timeout=table.seconds("timeout", default.timeout),
        workers=_whole(table, "workers", default.workers, 1),
        ocr=ocr,
    )
    if limits.memory < 128 * 1024 * 1024:
        table.fault("memory", "must be at least 128MiB: the interpreter and its libraries need that much")
    table.close()
    return limits


def _tools(table: Table) -> ToolSettings:
    default = ToolSettings()
    settings = ToolSettings(
        rounds=_whole(table, "rounds", default.rounds, 1),
        timeout=table.seconds("timeout", default.timeout),
        result_tokens=_whole(table, "result_tokens", default.result_tokens, 100),
        web_fetch=bool(table.flag("web_fetch", True)),
    )
    if settings.rounds > MAX_ROUNDS:
        table.fault("rounds", f"must be at most {MAX_ROUNDS}")
    table.close()
    return settings


def _search(table: Table) -> SearchSettings:
    backend = table.choice("backend", BACKENDS, "auto")
    price = table.decimal("price", "0") or "0"
    settings = SearchSettings(
        backend=backend,
        url=table.text("url").rstrip("/"),
        api_key=table.secret("api_key"),
        index=table.text("index", "kenari-index.db"),
        price=_amount(table, price),
        price_text=price,
    )
    if settings.url and not re.match(r"https?://[^\s]+\Z", settings.url):
        table.fault("url", "must be an http or https address")
    if backend == "searxng" and not settings.url:
        table.fault("url", "is required for searxng: the address before /search")
    if backend in ("brave", "tavily") and not settings.api_key:
        table.fault("api_key", f"is required for {backend}")
    table.close()
    return settings


def _amount(table: Table, text: str) -> int:
    try:
        return parse_amount(text)
    except ValueError as error:
        table.fault("price", str(error))
        return 0


def _whole(table: Table, key: str, default: int, least: int) -> int:
    value = table.whole(key, default, least=least)
    return default if value is None else min(value, LARGEST)


def show_outside(settings: OutsideSettings) -> dict[str, dict[str, Any]]:
    """The five tables as they are written, secrets left out: (name -> value) where a float is seconds and a size bytes."""
    fetch, documents = settings.fetch, settings.documents
    return {
        "fetch": {
            "proxy": fetch.proxy,
            "allow_networks": [str(network) for network in fetch.networks],
            "only_domains": list(fetch.domains),
            "timeout": fetch.timeout,
            "max_size": fetch.max_size,
        },
        "images": {
            "max_count": settings.images.max_images,
            "max_size": settings.images.max_image_size,
            "timeout": settings.images.timeout,
        },
        "documents": {name: getattr(documents, name) for name in documents.__struct_fields__},
        "tools": {name: getattr(settings.tools, name) for name in settings.tools.__struct_fields__},
        "search": {
            "backend": settings.search.backend,
            "url": settings.search.url,
            "api_key": settings.search.api_key,
            "index": settings.search.index,
            "price": settings.search.price_text,
        },
    }
