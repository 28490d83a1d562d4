"""The OpenAPI 3.1 document of the management API, made from its table of routes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from kenari.core.errors import KINDS
from kenari.doors.admin.bodies import ErrorBody
from kenari.doors.admin.table import ID, PREFIX, Route
from kenari.wire import jsonx

_TEMPLATE = "#/components/schemas/{name}"
_COMMON = ("bad_request", "invalid_api_key", "rate_limited", "internal_error", "upstream_unavailable")
"""Codes that every route may answer."""
_WITH_BODY = ("request_too_large", "unsupported_media_type")


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The document as plain values."""
    records: list[type[msgspec.Struct]] = [ErrorBody]
    for route in routes:
        records += [record for record in (route.answer, route.body, route.query) if record is not None]
    records = list(dict.fromkeys(records))
    _, components = jsonx.schemas(records, _TEMPLATE)
    schemas = {name: _tidy(schema) for name, schema in components.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route, schemas)
    for route in routes:
        if route.query is not None:
            schemas.pop(route.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kenari management API",
            "version": version,
            "description": "Accounts, keys, credit, bills and the audit log. Served on the admin port only.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": ID}}
        for name in route.names
    ]
    if route.query is not None:
        query = schemas[route.query.__name__]
        parameters += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in query["properties"].items()
        ]
    operation: dict[str, Any] = {
        "operationId": route.act.__name__,
        "summary": route.summary,
        "parameters": parameters,
        "responses": _answers(route),
    }
    if route.body is not None:
        required = bool(schemas[route.body.__name__].get("required"))
        operation["requestBody"] = {"required": required, "content": _json(route.body)}
    return operation


def _answers(route: Route) -> dict[str, Any]:
    answers: dict[str, Any] = {str(route.status): {"description": route.summary, "content": _json(route.answer)}}
    codes = (*_COMMON, *(_WITH_BODY if route.body is not None else ()), *route.errors)
    for status in sorted({KINDS[code].status for code in codes}):
        words = ", ".join(code for code in codes if KINDS[code].status == status)
        answers[str(status)] = {"description": words, "content": _json(ErrorBody)}
    return answers


def _json(record: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _TEMPLATE.format(name=record.__name__)}}}


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Without an empty `required`, which says nothing."""
    return {name: value for name, value in schema.items() if name != "required" or value}
