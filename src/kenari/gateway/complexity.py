"""What checking an answer against a JSON Schema may cost, told from the schema alone (pure).

A schema of two kilobytes can take for ever: where each definition refers to the next one twice, forty of them are a
thousand thousand million steps, and nothing interrupts them. So a schema is only used here when its cost has a bound: how
many of its parts are applied at one place of an answer, however deep that place is.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import unquote

import msgspec

MOST_STEPS = 20_000
"""Parts that are applied on the way to one place of an answer."""
MOST_WORK = 300_000
"""Steps of working that out."""
MOST_PATTERNS = 64
"""Regular expressions: each may take some milliseconds to be made ready."""
DEPTH = 20
"""Levels of an answer that are looked at: what grows at each of them has grown beyond all bounds by then."""

_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE = ("not", "if", "then", "else", "propertyNames")
_HERE_MAPS = ("dependentSchemas", "dependencies")
_ELEMENTS = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")
_ANY_MEMBER = ("additionalProperties", "unevaluatedProperties")
_REPEATING = ("unevaluatedProperties", "unevaluatedItems")
_UNKNOWN = ("$dynamicRef", "$recursiveRef")
_ELEMENT, _ANY = "[]", "*"

Node = dict[str, Any]


class TooComplexError(ValueError):
    """No bound is known, or it is too high."""


class _Place(msgspec.Struct):
    """What is applied at one place: how many parts, and which of them wait below, by the name of the member."""

    size: int
    below: dict[str, Counter[int]]


def check_complexity(schema: object) -> None:
    """Raise TooComplexError for a schema whose cost has no bound that is low enough."""
    try:
        if _Measure(schema).cost(schema, DEPTH) > MOST_STEPS:
            raise TooComplexError("it is too complex")
    except RecursionError:
        raise TooComplexError("it is nested too deeply") from None


class _Measure:
    def __init__(self, root: object) -> None:
        self._root = root
        self._nodes: dict[int, object] = {}
        self._places: dict[int, _Place | None] = {}  # None: being worked out
        self._costs: dict[tuple[int, int], int] = {}
        self._work = self._patterns = 0

    def cost(self, node: object, depth: int) -> int:
        """The parts that are applied on the most expensive way down from here."""
        known = self._costs.get((id(node), depth))
        if known is not None:
            return known
        place = self._place(node)
        wild = place.below.get(_ANY, Counter())
        most = 0
        if depth:
            for name, below in place.below.items():
                everywhere = wild if name not in (_ELEMENT, _ANY) else Counter[int]()
                most = max(most, sum(self._below(part, depth) for part in (below, everywhere)))
        self._costs[id(node), depth] = min(place.size + most, MOST_STEPS + 1)
        return self._costs[id(node), depth]

    def _below(self, part: Counter[int], depth: int) -> int:
        self._spend(len(part))
        return sum(times * self.cost(self._nodes[id], depth - 1) for id, times in part.items())

    def _place(self, node: object) -> _Place:
        key = id(node)
        if key in self._places:
            found = self._places[key]
            if found is None:
                raise TooComplexError("it refers to itself")
            return found
        self._places[key], self._nodes[key] = None, node
        place = _Place(1, {})
        if isinstance(node, dict):
            self._fill(cast("Node", node), place)
        self._places[key] = place
        return place

    def _fill(self, node: Node, place: _Place) -> None:
        if any(word in node for word in _UNKNOWN):
            raise TooComplexError("it refers to what is only known while it is checked")
        for inner in self._here(node):
            other = self._place(inner)
            place.size += other.size
            for name, parts in other.below.items():
                self._spend(len(parts) + 1)
                place.below.setdefault(name, Counter()).update(parts)
        for name, inner in _below(node):
            self._spend(1)
            self._nodes[id(inner)] = inner
            place.below.setdefault(name, Counter())[id(inner)] += 1
        if any(word in node for word in _REPEATING):  # what stands beside it is asked once more
            place.size *= 2
        if place.size > MOST_STEPS:
            raise TooComplexError("it is too complex")
        patterns = node.get("patternProperties")
        self._patterns += ("pattern" in node) + (len(cast("Node", patterns)) if isinstance(patterns, dict) else 0)
        if self._patterns > MOST_PATTERNS:
            raise TooComplexError(f"it has more than {MOST_PATTERNS} patterns")

    def _here(self, node: Node) -> Iterator[object]:
        """The parts that are applied at the same place."""
        if "$ref" in node:
            yield self._referred(node["$ref"])
        for word in _HERE_LISTS:
            yield from _listed(node.get(word))
        for word in _HERE:
            if word in node:
                yield node[word]
        for word in _HERE_MAPS:
            yield from _mapped(node.get(word)).values()

    def _referred(self, reference: object) -> object:
        """What a reference within the schema stands for."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise TooComplexError("it refers to something by a name or an address. refer to a place like #/$defs/name")
        found: object = self._root
        for part in reference.split("/")[1:]:
            step = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                within = _mapped(found)
                found = within[step] if within else _listed(found)[int(step)]
            except (LookupError, ValueError):
                raise TooComplexError(f"there is nothing at {reference[:80]}") from None
        return found

    def _spend(self, steps: int) -> None:
        self._work += steps + 1
        if self._work > MOST_WORK:
            raise TooComplexError("it is too complex")


def _below(node: Node) -> Iterator[tuple[str, object]]:
    """The parts that are applied to members and elements."""
    for name, inner in _mapped(node.get("properties")).items():
        yield f".{name}", inner
    for inner in _mapped(node.get("patternProperties")).values():
        yield _ANY, inner
    for word in _ANY_MEMBER:
        if word in node:
            yield _ANY, node[word]
    for word in _ELEMENTS:
        inner: object = node.get(word)
        if isinstance(inner, list):
            yield from ((_ELEMENT, one) for one in _listed(cast("object", inner)))
        elif word in node:
            yield _ELEMENT, inner


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _mapped(value: object) -> Node:
    return cast("Node", value) if isinstance(value, dict) else {}
