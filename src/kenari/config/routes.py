"""Reading `[routes]`: names for several models."""

import re
from typing import cast, get_args

from kenari.catalog.models import Model, Policy, Route
from kenari.config.table import Table, nearest

_WEIGHT = re.compile(r"[1-9][0-9]{0,8}")


def read_routes(table: Table, models: dict[str, Model]) -> dict[str, Route]:
    """All routes; their members are models."""
    children = table.children()
    names = frozenset(name for name, _ in children)
    return {name: _route(name, child, models, names) for name, child in children}


def _route(name: str, table: Table, models: dict[str, Model], names: frozenset[str]) -> Route:
    members: list[str] = []
    weights: list[int] = []
    known = models | {alias: model for model in models.values() for alias in model.aliases}
    if name in known or not name:
        table.fault("", "a model or an alias already has this name" if name else "a route needs a name")
    for text in table.texts("models"):
        plain = text in known or "@" not in text
        member, _, weight = (text, "", "1") if plain else text.rpartition("@")
        if member not in known and member in names:
            table.fault("models", f"{member!r} is a route; a route names models, so write those of {member!r} here")
        elif member not in known:
            table.fault("models", f"{member!r} is not a configured model{nearest(member, tuple(known))}")
        elif not _WEIGHT.fullmatch(weight):
            table.fault("models", f"{text!r} has no whole weight of at least 1 behind the @")
        else:
            members.append(member)
            weights.append(int(weight))
    if not table.has("models") or table.take("models") == []:
        table.fault("models", "is required: a list of model ids")
    if len({known[member].kind for member in members}) > 1:
        table.fault("models", "must all be of one kind")
    policy = cast("Policy", table.choice("policy", get_args(Policy), "order"))
    if policy == "cheapest":
        unpriced = [member for member in members if known[member].price is None]
        if unpriced:
            table.fault("policy", f"cheapest needs prices, and these have none: {', '.join(unpriced)}")
    deadline = table.seconds("deadline", 0.0) if table.has("deadline") else table.take("deadline")
    hedge = bool(table.flag("hedge", False))
    table.close()
    return Route(tuple(members), tuple(weights), policy, deadline, hedge)
