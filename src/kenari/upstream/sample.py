"""A small value that a JSON schema allows: what the scripted model fills a tool's arguments with. Pure."""

from typing import Any, cast

Schema = dict[str, Any]
_DEPTH = 8
"""References and nesting are followed this far; deeper down stands null."""


def sample_object(schema: Any) -> dict[str, Any]:
    """An object with the properties that `schema` requires. Anything that is no object schema gives `{}`."""
    value = _sample(schema, "", schema, _DEPTH)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def sample_value(schema: Any) -> Any:
    """A value of the kind that `schema` describes, the same each time."""
    return _sample(schema, "", schema, _DEPTH)


def _sample(schema: Any, name: str, root: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth == 0:
        return None
    node = _resolved(cast("Schema", schema), root)
    for ready in ("const", "default"):
        if ready in node:
            return node[ready]
    choices = node.get("enum") or node.get("examples")
    if isinstance(choices, list) and choices:
        return cast("list[Any]", choices)[0]
    for combined in ("anyOf", "oneOf", "allOf"):
        options = node.get(combined)
        if isinstance(options, list) and options:
            return _sample(cast("list[Any]", options)[0], name, root, depth - 1)
    return _of_kind(_kind(node), node, name, root, depth)


def _of_kind(kind: str, node: Schema, name: str, root: Any, depth: int) -> Any:
    if kind == "object":
        properties = _as_map(node.get("properties"))
        required = node.get("required")
        keys = cast("list[Any]", required) if isinstance(required, list) else []
        return {
            key: _sample(properties.get(key, {"type": "string"}), key, root, depth - 1)
            for key in keys
            if isinstance(key, str)
        }
    if kind == "array":
        items = node.get("items")
        if _is_command(name):
            return ["echo", "kenari"]
        count = _whole(node, "minItems", 1, 8)
        return [_sample(items, name, root, depth - 1) for _ in range(count)] if isinstance(items, dict) else []
    if kind in ("integer", "number"):
        return node.get("minimum", 1)
    if kind == "boolean":
        return True
    return None if kind == "null" else _text(node, name)


def _kind(node: Schema) -> str:
    kind = node.get("type")
    if isinstance(kind, list) and kind:
        kind = cast("list[Any]", kind)[0]
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in node else "string"


def _text(node: Schema, name: str) -> str:
    if _is_command(name):
        return "echo kenari"  # an agent may really run it: it has to be harmless
    text = "Jakarta" if "city" in name.lower() or "location" in name.lower() else "kenari"
    return text.ljust(_whole(node, "minLength", 0, 1000), ".")[: _whole(node, "maxLength", 1000, 1000)]


def _is_command(name: str) -> bool:
    return name.lower() in ("command", "cmd", "commands", "script")


def _resolved(node: Schema, root: Any) -> Schema:
    """The schema that a local `$ref` points at; the node itself when it points nowhere."""
    for _ in range(_DEPTH):
        pointer = node.get("$ref")
        if not isinstance(pointer, str) or not pointer.startswith("#/"):
            return node
        found = root
        for step in pointer[2:].split("/"):
            found = _as_map(found).get(step.replace("~1", "/").replace("~0", "~"))
        if not isinstance(found, dict):
            return node
        node = cast("Schema", found)
    return {}


def _as_map(value: Any) -> Schema:
    return cast("Schema", value) if isinstance(value, dict) else {}


def _whole(node: Schema, name: str, default: int, most: int) -> int:
    """A limit of the schema as a number from 0 to `most`; `default` where it is not one."""
    value = node.get(name)
    return min(max(value, 0), most) if isinstance(value, int) else default
