"""Checking an answer against the JSON Schema that was asked for. The library is the extra `kenari[schema]`."""

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from kenari.core.errors import KenariError, bad_request
from kenari.core.request import Format
from kenari.gateway.complexity import check_complexity
from kenari.wire import jsonx

Check: TypeAlias = Callable[[str], str | None]
"""A text -> what is wrong with it, in words for the model; None when it is right."""

MAX_SCHEMA = 256 * 1024
"""Bytes of a schema that is compiled here."""
MAX_WORDS = 400
_LIBRARY = "jsonschema_rs"


def make_check(wanted: Format) -> Check:
    """The check for a wanted format. Raises the 400 of a schema that is none, or of a check that cannot be made here."""
    if wanted.kind == "json_object":
        return _check_object
    schema = wanted.schema
    if schema is None or len(schema) > MAX_SCHEMA:
        raise bad_request("the JSON Schema is missing or too large to be checked here. make it smaller", _PARAM)
    try:
        library = importlib.import_module(_LIBRARY)  # an extra: it is loaded by the first request that needs it
    except ImportError:
        raise KenariError(
            "bad_request",
            "this model cannot be held to a JSON Schema, and this server cannot check its answers. choose another model, "
            "or ask the operator to install kenari[schema]",
            _PARAM,
            elsewhere=True,
        ) from None
    try:
        # offline: a reference to an address is an error, not a request from here; regular expressions in linear time
        value = jsonx.value(schema)
        check_complexity(value)
        validator: Any = library.validator_for(
            value, offline=True, pattern_options=library.RegexOptions(size_limit=1 << 20)
        )
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the JSON Schema cannot be used: {_first_line(str(error))}", _PARAM) from None

    def check(text: str) -> str | None:
        try:
            value = jsonx.value(text.encode("utf-8", "replace"))
        except jsonx.Malformed as error:
            return f"it is not valid JSON: {error}"
        fault = next(iter(validator.iter_errors(value)), None)
        if fault is None:
            return None
        where = "/".join(str(step) for step in fault.instance_path)
        return f"{_first_line(str(fault.message))}" + (f" (at {where})" if where else "")

    return check


_PARAM = "response_format"


def _check_object(text: str) -> str | None:
    try:
        value = jsonx.value(text.encode("utf-8", "replace"))
    except jsonx.Malformed as error:
        return f"it is not valid JSON: {error}"
    return None if isinstance(value, dict) else "it is not a JSON object"


def _first_line(text: str) -> str:
    line = text.strip().split("\n")[0]
    return line if len(line) <= MAX_WORDS else line[:MAX_WORDS] + "..."
