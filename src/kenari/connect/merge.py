"""A client's file with kenari's settings in it; what else the user wrote, comments too, stays."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from kenari.connect import jsonc
from kenari.connect.client import Client

try:
    import tomlkit
except ImportError:  # an extra: only a TOML file that holds something already needs it
    tomlkit = None

BEGIN = "# kenari begins (written by `kenari connect`)"
END = "# kenari ends"
_OURS = re.compile(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.S)


class MergeError(ValueError):
    """The file cannot be changed. The message says why and what to do."""


def merged(client: Client, text: str) -> str:
    """The file's new text. `text` is what it held, empty when there was none. Raises MergeError."""
    assert client.file is not None
    match client.file.kind:
        case "toml":
            return _merge_toml(text, client.settings)
        case "json":
            try:
                return jsonc.merge(text, client.settings)
            except ValueError as error:
                raise MergeError(f"{error}. repair it, or add the settings by hand") from None
        case "yaml":
            return _merge_block(text, client.block)


def _merge_toml(text: str, settings: Mapping[str, Any]) -> str:
    if not text.strip():
        return _toml(settings)
    if tomlkit is None:
        raise MergeError("changing a TOML file needs tomlkit. run: pip install 'kenari[connect]'")
    try:
        document = tomlkit.parse(text)
    except ValueError as error:
        raise MergeError(f"the file is not valid TOML: {error}. repair it, or add the settings by hand") from None
    _update(cast("Any", document), settings)
    return tomlkit.dumps(document)  # pyright: ignore[reportUnknownMemberType]


def _toml(settings: Mapping[str, Any], path: str = "") -> str:
    """A file of its own: plain values first, then a table for each group of them."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    lines = [f"[{path}]"] if path and plain else []
    lines += [f"{name} = {_toml_value(value)}" for name, value in plain.items()]
    tables = ["\n".join(lines) + "\n"] if lines else []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            tables.append(_toml(cast("Mapping[str, Any]", value), f"{path}.{name}" if path else name))
    return "\n".join(tables)


def _toml_value(value: Any) -> str:
    """A string, a number or a boolean; TOML writes them as JSON does, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _update(table: Any, settings: Mapping[str, Any]) -> None:
    """Merge member by member. A plain value stands before the tables, where TOML wants it."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            if not isinstance(table.get(name), Mapping):
                table[name] = {}
            _update(table[name], cast("Mapping[str, Any]", value))
        else:
            table[name] = value


def _merge_block(text: str, block: str) -> str:
    """YAML lists are not merged but have one block of ours, between two comments."""
    ours = f"{BEGIN}\n{block.strip()}\n{END}\n"
    if _OURS.search(text):
        return _OURS.sub(lambda _: ours, text)
    return text + ("\n" if text and not text.endswith("\n") else "") + ours
